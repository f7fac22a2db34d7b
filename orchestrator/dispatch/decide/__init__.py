"""Which repeat goes where, what is tried again, when all is done; no I/O.

Open `state` first.
"""
