"""What was measured: latency, memory, quality, doubts, differences between models.

Open `performance_table` first.
"""
