"""Exports a network or a user's file in a child process.

Open `exporters` first: the table of formats. `process` starts the child, `__main__` is the child.
"""
