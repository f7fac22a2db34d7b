"""All that is known about one device, model or sweep.

Open `subjects` first; `dossier` has the parts that they share.
"""
