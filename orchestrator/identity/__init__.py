"""The identifiers of cells, platforms, hosts and rows.

Open `cells` first, then `keys`.
"""
