"""Which device to use as a reference, what to measure next, what to decide.

Open `recommend` first.
"""
