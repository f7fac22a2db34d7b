"""The control loop: feeds events to `decide.step` and carries out the actions.

Open `controller` first.
"""
