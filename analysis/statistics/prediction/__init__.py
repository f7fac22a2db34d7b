"""Predicted latencies on a target, and their errors.

Open `predictability` first.
"""
