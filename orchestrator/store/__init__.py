"""The results folder: journals, Parquet parts, sweep records.

Open `results` first.
"""
