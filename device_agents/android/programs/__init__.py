"""Command lines and outputs of benchmark programs on phones; this code does not contact a phone.

Open `phone_program` first: the contract, and the table of the members.
"""
