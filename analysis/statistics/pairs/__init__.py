"""Which of two models is faster on a device, and what decides it.

Open `pairs` first.
"""
