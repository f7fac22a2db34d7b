"""Tables and statistics over stored rows; it needs no runtime.

Open `stored.columns` first: the one definition of the table.
"""
