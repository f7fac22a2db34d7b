"""The CPU of a host.

Open `agent` first.
"""
