"""The command line, one file per command.

Open `main` first: it lists the commands.
"""
