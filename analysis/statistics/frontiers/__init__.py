"""Pareto frontiers and what a wrong one costs.

Open `pareto_table` first.
"""
