"""What all packages share; the standard library is all it imports.

Open `errors` first: the base of every error that a user is meant to read.
"""
