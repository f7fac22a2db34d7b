"""Whole sweeps leave a workspace, or come from another: planned first, safe from a kill.

Open `pending` first: one marker decides whether readers see a sweep; `delete` and `merge` write it.
"""
