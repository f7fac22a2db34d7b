"""What runs on each host: its devices, its service and its spool.

Open `host_service` first.
"""
