"""Decides what a sweep does next: `step` takes an event and returns actions; no I/O, no clock.

Open `step` first, then `retry` (back-off, devices set aside, lost hosts), `messages` and `state`.
"""
