"""One supervised child process, for every package that runs work outside its own process.

Open `supervised_child` first: the parent's side. `own_process` is the child's side. `temporary` has
folders that do not stay when their process is killed.
"""
