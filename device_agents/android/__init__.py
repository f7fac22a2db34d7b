"""Android phones over adb: what drives one, what runs on it, and what its answers mean."""
