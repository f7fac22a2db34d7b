"""Drives Android phones over adb."""
