"""Two walls around a worker that opens a file this workspace did not make.

Neither depends on the checks of a file format. The kernel's wall (Landlock) holds every thread and
every child; Python's wall (an audit hook) also sees what the kernel lets through, and names it.
`walls.py` raises both, `grants.py` says what stays open, `scratch.py` is the parent's part.
"""
