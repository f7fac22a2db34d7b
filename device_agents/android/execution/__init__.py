"""One program on a phone: chosen, downloaded, verified, pushed, run, and its output stored.

Open `program_run` first.
"""
