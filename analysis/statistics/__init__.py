"""One folder per question; a statistic is a function on arrays, and its table is next to it.

Open `transfer` first, then `pairs`.
"""
