"""Text that devices and their tools write: bounded where it is read, held to plausible values.

Open `device_text` first.
"""
