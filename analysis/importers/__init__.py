"""Published measurements of others as rows of the table.

Open `release` first: what an importer gives.
"""
