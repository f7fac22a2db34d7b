"""Requests to an agent and its answers; every other folder imports them.

Open `task` first, then `measurement`. `kind` is the contract of a kind of device, and `agent` of
the code that drives one, with the facts it reports.
"""
