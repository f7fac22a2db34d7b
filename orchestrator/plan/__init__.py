"""From a sweep file to cells: what is measured, what is skipped and why, how long it takes.

Open `plan` first.
"""
