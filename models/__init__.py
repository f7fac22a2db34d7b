"""Knows networks and files: cards, weights, cost, exports and their verification."""
