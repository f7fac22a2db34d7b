"""The side of adb that a phone plays: packets, streams, shell and file transfer.

Open `connection` first.
"""
