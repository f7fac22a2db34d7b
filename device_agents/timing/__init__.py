"""How long to warm up and to measure, when to stop, and which flags the samples get.

Open `timing` first.
"""
