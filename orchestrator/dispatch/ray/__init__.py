"""Runs the host service on other hosts, through Ray.

Open `ray_process` first: it starts the child that talks to Ray. In the child run `ray_program` and
`ray_executor`.
"""
