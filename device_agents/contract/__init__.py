"""What an agent is asked and what it answers; every other folder imports it.

Open `task` first, then `measurement`; `agent` is the contract of a kind of device.
"""
