"""SQL over stored results, with file access switched off.

Open `query` first.
"""
