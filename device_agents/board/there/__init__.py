"""The code that runs on a board, beside the worker; it is sent there with the worker.

Open `board_host` first, then `host_process`. Nothing here imports a runtime.
"""
