"""Networks and their files; knows nothing of devices.

Open `cards.card` first: the type of a model. `cache` keeps exported files.
"""
