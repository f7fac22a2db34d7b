"""Values that are in another unit, off the line or impossible.

Open `audit` first.
"""
