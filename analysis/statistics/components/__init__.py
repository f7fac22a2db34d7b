"""Where the time of one inference goes, by module and operator.

Open `components` first.
"""
