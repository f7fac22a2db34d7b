"""Values per model and platform, and the pairs of platforms that are compared.

Open `panel` first, then `pairs`.
"""
