"""`fleetrank devices ...`.

Open `devices_command` first.
"""
