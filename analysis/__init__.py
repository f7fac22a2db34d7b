"""Tables and statistics over stored rows; runs without any runtime.

Open `stored.columns` first: the one definition of the table.
"""
