"""Where the time of one inference goes, kernel by kernel, by runtime.

Open `profiler` first: the contract, the table of the members, and how a member is run.
"""
