"""Two walls around a worker that opens a file this workspace did not make.

Neither depends on the checks of a file format. The wall of the kernel (Landlock) holds every thread
and every child; the wall of Python (an audit hook) also names what was tried.

Open `walls` first: it raises both. `grants` lists what stays allowed.
"""
