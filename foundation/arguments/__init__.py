"""Checks of what a program gives to a function. Open `argument_checks`."""
