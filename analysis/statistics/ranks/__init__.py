"""Ranks of models: with their noise, beside FLOPs, and by FRM and other scores.

Open `model_ranks` first.
"""
