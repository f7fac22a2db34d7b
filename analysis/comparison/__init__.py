"""Two sweeps compared: what got slower beyond noise.

Open `comparison` first.
"""
