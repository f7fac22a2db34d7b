"""Exports the files of a sweep once, and verifies them by running them.

Open `export_stage` first.
"""
