"""Checks stored results for damage and repairs them. Open `verify` first."""
