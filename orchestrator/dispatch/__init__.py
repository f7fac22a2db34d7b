"""Repeats to devices: `decide` is pure, `drive` acts, `host` runs on each host, `ray` connects.

Open `drive.controller` first.
"""
