"""What a sweep reports while it runs, and who shows it.

Open `events` first.
"""
