"""The agent of a host: it takes tasks, keeps files and results, and drives the devices.

Open `host` first, then `messages`; `reach` is how a driver calls one.
"""
