"""Programs on a phone: chosen, downloaded, verified, pushed and run.

Open `program` first.
"""
