"""Published measurements of others as rows of the table.

Open `importer` first: the importers by name, and how one is added; then `release`: what it gives.
"""
