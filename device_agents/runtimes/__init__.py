"""The runtimes inside the worker.

Open `runner` first: the contract. `runtime_registry` lists the members.
"""
