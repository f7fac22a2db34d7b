"""Units and keys that the points of several charts share."""

BYTES_PER_MB = 1e6
PLACE = ["model", "platform_key"]
DIGITS = 4
"""No process median is precise to more digits."""
