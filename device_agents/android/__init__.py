"""Android phones through adb.

Open `kind` first, then `agent` and `visit`: one repeat on one phone.
"""
