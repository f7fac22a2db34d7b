"""The Parquet parts of a sweep: written with checksums, read with them.

Open `parts` first.
"""
