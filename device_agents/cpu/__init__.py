"""The agent of the CPU of this host."""
