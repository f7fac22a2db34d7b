"""Registers a phone, tests it and checks it again later.

Open `phone_registration` first.
"""
