"""Deletes whole sweeps, or copies them from another workspace: planned first, safe from a kill.

Open `stored_sweep` first: its marker decides whether readers see a sweep; `delete_and_merge`
writes it.
"""
