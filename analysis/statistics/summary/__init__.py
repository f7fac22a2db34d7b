"""One record for each run: a model with its weights on one platform.

Open `summary` first.
"""
