"""Do rankings transfer between platforms, how well could they, and how stable are they?

Open `transfer_table` first.
"""
