"""Phones that exist only in software and use the adb protocol, for trials and tests.

Open `virtual_phone` first; `farm` starts several.
"""
