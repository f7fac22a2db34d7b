"""An adb daemon of our own: phones for people and tests that have none."""
