"""Statistics on NumPy arrays; no tables.

Open `ranking` first.
"""
