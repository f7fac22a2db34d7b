"""Does a ranking carry over to another condition, beside chance, FLOPs and noise?

Open `transfer` first.
"""
