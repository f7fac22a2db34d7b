"""Model cards: what a model is called, where it comes from, what is published about it.

Open `card` first: the type. `zoo` reads the built-in cards and those of a workspace.
"""
