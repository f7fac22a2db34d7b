"""The files that a user writes (sweeps, devices, selectors) and their locations.

Open `workspace` first.
"""
