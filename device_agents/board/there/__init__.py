"""The code that runs on a board, beside the worker; it is sent there with the worker.

Open `commands` first. Nothing here imports a runtime.
"""
