"""The measuring code as one file for a board, in a form that Python 3.9 runs.

Open `code_bundle` first.
"""
