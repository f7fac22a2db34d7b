"""Runs repeats on devices: `decide` is pure, `drive` does the I/O, `host` runs on each host, `ray`
connects them.

Open `drive.controller` first.
"""
