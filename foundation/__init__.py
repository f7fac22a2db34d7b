"""Code that all packages share; it imports only the standard library.

Open `errors` first: the base of every error that a user reads. `supervised_child` runs child
processes; `codec` encodes the messages between them.
"""
