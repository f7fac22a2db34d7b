"""Reads measurements that others published; pure: bytes in, rows of the table out."""
