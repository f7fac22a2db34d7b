"""One program on a phone: chosen, verified, pushed, run, and its output stored.

Open `program_run` first.
"""
