"""The points of each chart, without drawing.

Open `latency` first.
"""
