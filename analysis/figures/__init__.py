"""What the charts show, without drawing: points, names, order and marks.

Open `points` first.
"""
