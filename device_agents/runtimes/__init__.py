"""The runtimes inside the worker.

Open `runner` first: the contract, and the table of the members.
"""
