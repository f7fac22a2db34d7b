"""Decides which device runs a repeat, what is retried, and when the sweep is done; no I/O.

Open `state` first.
"""
