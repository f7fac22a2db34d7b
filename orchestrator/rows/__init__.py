"""A measurement as a row of the table.

Open `translate` first.
"""
