"""Devices that are computed: a roofline with seeded noise and faults.

Open `agent` first.
"""
