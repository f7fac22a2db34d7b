"""Progress events of a running sweep, and the displays that show them.

Open `events` first.
"""
