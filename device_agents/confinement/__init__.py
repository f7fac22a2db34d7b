"""Two barriers around a worker that opens a file from outside this workspace.

Neither barrier depends on the checks of a file format. The kernel's barrier (Landlock) applies to
every thread and child. The Python barrier (an audit hook) also reports what the file tried.

Open `walls` first: it activates both and contains the hook. `grants` lists what stays allowed.
"""
