"""Three barriers around a worker that opens a file from outside this workspace.

No barrier depends on the checks of a file format. The kernel's two (Landlock for files, seccomp for
system calls) apply to every thread and child. The Python barrier (an audit hook) also reports what
the file tried.

Open `walls` first: it activates them and contains the hook. It also lists what stays
allowed; `seccomp` the system calls that are not.
"""
