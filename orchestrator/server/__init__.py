"""The local web application: pages, JSON API and the live view of a sweep.

Open `app` first. A new table or part needs no change here: `app` reads the list of tables.
"""
