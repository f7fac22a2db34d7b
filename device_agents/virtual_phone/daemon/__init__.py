"""The phone's side of adb: packets, streams, shell and file transfer.

Open `connection` first.
"""
