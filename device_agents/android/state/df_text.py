"""Parses the output of `df -k PATH`."""

from itertools import pairwise

from fleetrank.device_agents.device_output.device_text import lines_of, whole_number
from fleetrank.device_agents.device_output.plausible import STORAGE_BYTES


def free_bytes(text: str) -> int | None:
    """Free space in the file system of the one path; `None` if the text has another form.

    A row ends with blocks, used, available, per cent, mount point. It may be wrapped after a
    long name.

    Source: toybox 0.8 (Android 8 to 15) and GNU coreutils 9.

    Raises:
        BadOutputError: an impossible figure.
    """
    for line in (line for line in lines_of(text) if "%" in line):
        words = line.split()
        for at, (share, mount) in enumerate(pairwise(words)):
            if at >= 3 and _is_share(share) and mount.startswith("/"):
                blocks, used, free = map(whole_number, words[at - 3 : at])
                if free is not None and None not in (blocks, used) and free >= 0:
                    STORAGE_BYTES.require(free * 1024, line.strip())
                    return free * 1024
    return None


def _is_share(word: str) -> bool:
    digits = word.removesuffix("%")
    return word.endswith("%") and digits.isascii() and digits.isdigit()
