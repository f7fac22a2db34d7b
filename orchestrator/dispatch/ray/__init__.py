"""Runs the host service on other hosts, through Ray.

Open `ray_executor` first.
"""
