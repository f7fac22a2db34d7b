"""Ways to read a long text, and from which length on one of them is faster.

Open `strategies` first.
"""
