"""Where the variance of latency lies, and what more measuring would buy.

Open `variance` first.
"""
