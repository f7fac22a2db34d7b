"""What `df -k PATH` says."""

import re

_ROW = re.compile(r"[0-9]+\s+[0-9]+\s+([0-9]{1,15})\s+[0-9]+%\s+/")
"""Blocks, used, available, per cent, mount point: toybox and coreutils alike, wrapped or not."""


def free_bytes(text: str) -> int | None:
    """Free space in the file system of the one path asked for; `None` when the text is another.

    Source: toybox 0.8 (Android 8 to 15) and GNU coreutils 9.
    """
    found = _ROW.search(text)
    return None if found is None else int(found[1]) * 1024
