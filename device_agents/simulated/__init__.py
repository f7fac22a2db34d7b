"""Simulated devices: a roofline model with seeded noise and faults.

Open `agent` first.
"""
