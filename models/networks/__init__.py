"""Builds PyTorch networks from cards, loads their weights and counts their cost.

Open `build` first.
"""
