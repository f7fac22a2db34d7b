"""Comparison of two sweeps: which cells are slower beyond the noise.

Open `comparison` first, then `cell_verdicts`: one cell in both sweeps.
"""
