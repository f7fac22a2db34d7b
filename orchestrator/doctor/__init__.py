"""Checks of this machine.

Open `finding` first: what a check answers.
"""
