"""One supervised child process, for every package that runs work outside its own process.

Open `supervised_child` first: the parent's side. `reaper` starts the program and ends what it
leaves behind. `own_process` is the child's side. `temporary` has folders that do not stay when
their process is killed.
"""
