"""Whole numbers of the units in which times and sizes are stored."""

NS_PER_US = 10**3
NS_PER_MS = 10**6
NS_PER_S = 10**9
BYTES_PER_MIB = 2**20
