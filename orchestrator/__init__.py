"""The conductor: sweeps, dispatch, results, command line, server; the only package that knows Ray.

Open `sweep.sweep_run` first: one sweep from its file to its end.
"""
