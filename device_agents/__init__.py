"""Devices and runtimes: measures one exported file on one device.

Open `contract.task` first: the request to an agent. `registry` lists the kinds of devices,
`device_output` limits and checks what a device prints.
"""
