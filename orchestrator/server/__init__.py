"""The local web application: pages, JSON API and the live view of a sweep.

Open `app` first.
"""
