"""Tables of measurements: latency, memory, quality, audit, differences between models.

Open `cell_tables` first.
"""
