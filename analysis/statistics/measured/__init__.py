"""Tables of measurements: latency, memory, quality, audit, differences between models.

Open `performance_table` first.
"""
