"""Folders that are read-only or have little room for one command, root's rights or not."""

import os
import shutil
import subprocess
from pathlib import Path

_UNSHARE = ["unshare", "--mount", "--propagation", "private"]


def why_no_mounts() -> str | None:
    """Why this process cannot mount anything for its children; `None` where it can."""
    if shutil.which("unshare") is None:
        return "there is no unshare (util-linux)"
    tried = subprocess.run(
        [*_command(), "mount", "-t", "tmpfs", "tmpfs", "/tmp"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else f"mounts are not permitted: {tried.stderr.decode()}"


def with_read_only(folder: Path) -> list[str]:
    """What stands before a command that may only read a folder."""
    return _before(
        'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; shift; exec "$@"', folder
    )


def with_little_room(folder: Path, size_bytes: int, kept: Path) -> list[str]:
    """What stands before a command for which a folder is an empty file system of this size.

    What the command leaves in it is copied to `kept`, since the file system ends with it.
    """
    script = (
        'mkdir -p "$1"; mount -t tmpfs -o size="$2" tmpfs "$1"; in="$1"; kept="$3"; shift 3; '
        'set +e; "$@"; code=$?; cp -a "$in" "$kept"; exit $code'
    )
    return _before(script, folder, str(size_bytes), kept)


def _before(script: str, *words: Path | str) -> list[str]:
    return [*_command(), "sh", "-ec", script, "sh", *map(str, words)]


def _command() -> list[str]:
    return _UNSHARE if os.geteuid() == 0 else [*_UNSHARE, "--user", "--map-root-user"]
