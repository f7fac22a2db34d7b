"""Comparison of two sweeps: which cells are slower beyond the noise.

Open `comparison` first.
"""
