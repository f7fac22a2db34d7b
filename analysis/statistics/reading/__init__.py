"""How long a text takes to read: at once, in sliding windows, or in segments with a memory.

Open `strategies_table`; `crossover` has the arithmetic, `reading_cells` the measurements.
"""
