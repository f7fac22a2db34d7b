"""How long to warm up and to time, when to stop, and which flags the samples earn.

Open `timing` first.
"""
