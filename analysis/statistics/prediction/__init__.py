"""Predicted latencies on a target, and their errors.

Open `predictions` first: it predicts a device. `predictability` says how well one platform predicts
another.
"""
