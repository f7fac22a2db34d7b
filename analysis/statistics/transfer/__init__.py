"""Do rankings transfer between platforms, what is the limit, and how stable are they?

Open `transfer` first.
"""
