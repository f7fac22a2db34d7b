"""Checks of this machine.

Open `finding` first: the result of a check.
"""
