"""What was measured, and how far one may trust it; nothing is compared across devices.

Open `verdicts` first.
"""
