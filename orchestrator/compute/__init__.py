"""Answers from a results folder, computed in a child process that can be limited and killed.

Open `child` first: it starts `worker`, which answers each `Job`. The server and the command line
ask the same child.
"""
