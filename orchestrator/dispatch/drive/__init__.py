"""The loop that polls, stores, asks the decisions and acts.

Open `controller` first.
"""
