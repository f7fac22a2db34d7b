"""The parts of a sweep and their keys: values only, nothing here reads a file.

Open `cells` first, then `keys`.
"""
