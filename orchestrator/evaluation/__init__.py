"""`fleetrank eval`: how good a model is on the user's data, through an exported file.

Open `evaluate` first.
"""
