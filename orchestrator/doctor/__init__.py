"""Checks of the machine a sweep is about to run on, each with its remedy."""
