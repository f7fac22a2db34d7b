"""The summary of one run: identity, architecture, quality, latency, rate and memory of a model.

Open `run_summary`.
"""
