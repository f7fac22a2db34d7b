"""Registering a phone, trying it, checking it again.

Open `phone_registration` first.
"""
