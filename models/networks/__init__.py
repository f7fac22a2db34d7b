"""PyTorch networks: built from a card, given weights, their cost counted.

Open `build` first.
"""
