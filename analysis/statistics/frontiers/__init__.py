"""Pareto frontiers, and the cost of using another device's frontier.

Open `frontier_transfer` first.
"""
