"""Which device to own, what to measure next, what to decide.

Open `recommend_table` first.
"""
