"""Do the claims of a study hold in the selected rows?

Open `claims` first; `study.toml` has the claims of the study that fleetrank reproduces.
"""
