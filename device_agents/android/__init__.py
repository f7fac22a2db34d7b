"""Android phones through adb.

Open `agent` first, then `visit`: one repeat on one phone.
"""
