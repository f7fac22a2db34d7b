"""Text from devices and their tools: its length is limited and its values are range-checked.

Open `device_text` first.
"""
