"""Runs one sweep, from its file to its end.

Open `sweep_run` first, then `sweep_session`.
"""
