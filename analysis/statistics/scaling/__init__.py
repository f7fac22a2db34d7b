"""How latency, rate and memory change with batch, length, size, threads and processes.

Open `scaling` first.
"""
