"""Model cards: the name, source and published data of a model.

Open `card` first; it defines the types. `zoo` reads the built-in cards and those of a workspace,
`identity` hashes the files that a card names.
"""
