"""Model cards: the name, source and published data of a model.

Open `card` first; it defines the type. `zoo` reads the built-in cards and those of a workspace.
"""
