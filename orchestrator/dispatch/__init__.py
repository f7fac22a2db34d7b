"""Runs repeats on devices: `decide` is pure, `drive` acts, `host` runs on each host, `ray` links.

Open `drive.controller` first.
"""
