"""Pareto frontiers, and the cost of using another device's frontier.

Open `pareto_table` first.
"""
