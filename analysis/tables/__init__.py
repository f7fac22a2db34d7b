"""The tables a user can ask for, and how they are written.

Open `tables` first: it lists them.
"""
