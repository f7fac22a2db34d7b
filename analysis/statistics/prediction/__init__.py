"""What a hardly measured device will do, and how well such predictions hold.

Open `predictions` first.
"""
