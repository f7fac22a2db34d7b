"""Knows hardware and runtimes: measures one exported file on one device."""
