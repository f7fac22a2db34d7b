"""One virtual phone: its profile and dumps, its folder and its faults.

Open `virtual_phone` first.
"""
