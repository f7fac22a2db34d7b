"""`fleetrank results ...`.

Open `results_command` first.
"""
