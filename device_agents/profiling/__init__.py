"""Where the time of one inference goes, kernel by kernel, by runtime.

Open `profiler` first: the contract, and the table of the members. `profiled_runs` runs a member.
"""
