"""Android phones through adb.

Open `agent` first: `Visit` is one repeat on one phone.
"""
