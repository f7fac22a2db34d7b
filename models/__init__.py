"""Networks and their files; independent of devices.

Open `cards.card` first: the type of a model. `cache` keeps exported files.
"""
