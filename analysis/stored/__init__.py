"""Stored rows: the columns, how they are read, which of them count.

Open `columns` first, then `load` and `scope`.
"""
