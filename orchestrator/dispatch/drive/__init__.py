"""The control loop: polls, stores rows, asks the decision functions and acts.

Open `controller` first.
"""
