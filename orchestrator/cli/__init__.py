"""The command line, one file per command or small group of commands.

Open `main` first: it lists the commands.
"""
