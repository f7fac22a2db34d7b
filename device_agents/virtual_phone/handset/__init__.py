"""One virtual phone: its profile, its folder, its dumps and its faults.

Open `virtual_phone` first.
"""
