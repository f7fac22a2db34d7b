"""Runs repeats on devices: `decide` is pure, `controller` acts, `host` runs on each host.

Open `controller` first: its loop asks `decide.step` and calls `hosts`, which reaches each host here
or through Ray.
"""
