"""How the command line prints lists, tables and plans.

Open `listing` first.
"""
