"""How the latency of a model changes from sweep to sweep, and whether the model or the host did.

Open `history_table` first.
"""
