"""Services of a Linux host: the worker process, its limits, conditions, memory and energy readings.

Open `worker_client` first: it runs one worker and turns every outcome into an answer.
"""
