"""Which devices and models to measure next, and the decision tree of the study.

Open `recommend` first.
"""
