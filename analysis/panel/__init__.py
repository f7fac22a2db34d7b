"""Values per model and condition, the pairs of conditions, and how far these agree.

Open `session` first, then `panel`, `conditions` and `agreement`.
"""
