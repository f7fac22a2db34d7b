"""The journal of a sweep: checked lines while it runs, packed when it is finished.

Open `journal` first.
"""
