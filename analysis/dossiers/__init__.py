"""All that is known about one device, model or sweep.

Open `dossier` first.
"""
