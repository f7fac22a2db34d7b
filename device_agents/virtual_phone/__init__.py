"""Phones that exist only in software and speak adb, for trials and tests.

Open `handset.virtual_phone` first; `daemon.farm` starts several.
"""
