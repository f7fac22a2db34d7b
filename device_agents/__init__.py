"""Devices and runtimes: measures one exported file on one device.

Open `contract.task` first: what an agent is asked. `registry` lists the kinds of devices.
"""
