"""Values per model and platform, and the pairs of platforms that are compared.

Open `session` first, then `panel` and `pairs`.
"""
