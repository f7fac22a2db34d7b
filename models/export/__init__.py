"""A network or a user's file to an exported file, in a child process.

Open `exporter` first: the contract and its members. `process` starts the child.
"""
