"""Models that took turns: what the host did to them, and their latencies without it.

Open `round_values`: it turns stored rounds into the values that rank models.
"""
