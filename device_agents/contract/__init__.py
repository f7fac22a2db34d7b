"""Requests to an agent and its answers; every other folder imports them.

Open `task` first, then `measurement`; `agent` is the contract of a device kind.
"""
