"""The sections of the page.

Open `headline` first.
"""
