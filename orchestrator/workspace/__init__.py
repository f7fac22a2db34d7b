"""The files that a person writes: sweeps, devices, selectors; and where they are.

Open `workspace` first.
"""
