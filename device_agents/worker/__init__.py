"""One measurement in one fresh process: `python -P -m fleetrank.device_agents.worker`.

Open `measure` first: the protocol from load to energy. `__main__` reads and answers one request.
"""
