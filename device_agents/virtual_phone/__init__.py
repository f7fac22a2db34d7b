"""Phones that exist only in software and use the adb protocol, for trials and tests.

Open `handset.virtual_phone` first; `daemon.farm` starts several.
"""
