"""The page: evidence gathered once, then figures, tables and words.

Open `page` first.
"""
