"""Durable results: the journal, Parquet parts, provenance and resume."""
