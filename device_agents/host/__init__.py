"""What a Linux host gives: processes, locks, conditions, memory and energy readings.

Open `worker_client` first: it runs one worker and turns each end of it into an answer.
"""
