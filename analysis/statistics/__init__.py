"""One folder per question; each statistic is arrays in, figures out, with its table beside it.

Open `transfer` first.
"""
