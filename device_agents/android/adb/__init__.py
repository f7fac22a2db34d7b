"""The adb protocol, from a socket to a phone that runs commands.

Open `phone` first.
"""
