"""Comparison of two sweeps: which cells are slower, and which are shown to be the same.

Open `comparison` first, then `verdict`: on two samples, whatever they come from.
"""
