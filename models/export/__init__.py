"""Exports a network or a user's file in a child process.

Open `exporter` first; it defines the contract and lists the exporters. `process` starts the child.
"""
