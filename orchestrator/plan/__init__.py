"""Turns a sweep file into cells: what is measured, what is skipped and why, and the duration.

Open `plan` first.
"""
