"""Exports of a sweep: made once, verified by running them.

Open `export_stage` first.
"""
