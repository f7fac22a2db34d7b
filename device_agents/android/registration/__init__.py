"""Finds phones, registers them, tests them and checks them again later.

Open `registrar` first.
"""
