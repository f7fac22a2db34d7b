"""Published measurements of others as rows of the table.

Open `release` first: the importers by name, how one is added, and what a release gives. `csv_map`
reads any CSV table by a mapping.
"""
