"""The HTML pages of the server.

Open `pages` first.
"""
