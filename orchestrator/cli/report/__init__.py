"""`fleetrank report ...`, `recommend` and `query`.

Open `report_command` first.
"""
