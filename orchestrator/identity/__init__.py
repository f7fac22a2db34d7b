"""What a cell, a platform, a host and a row are called.

Open `cells` first, then `keys`.
"""
