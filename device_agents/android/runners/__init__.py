"""Command lines and outputs of benchmark programs on phones; nothing here talks to a phone.

Open `phone_runner` first: the contract. `program_registry` lists the members.
"""
