"""Imitations of the benchmark programs, run by a virtual phone.

Open `command` first.
"""
