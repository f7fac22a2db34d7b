"""A control group in which the kernel kills processes for lack of memory."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")
_PLACES = (
    (_ROOT / "memory", "memory.limit_in_bytes", "memory.oom_control"),
    (_ROOT, "memory.max", "memory.events"),
)
"""Version 1 and 2: where groups are, the file of the limit, and the file that counts kills."""


@dataclass(frozen=True)
class MemoryGroup:
    """A group at a folder; `kills` counts the processes that were killed in it."""

    folder: Path
    kills: Path

    def take(self, pids: Iterable[int]) -> None:
        """Moves processes; what they ask for from now on counts against the limit."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (self.folder / "cgroup.procs").write_text(str(pid))

    def has_killed(self) -> bool:
        words = self.kills.read_text().split()
        return int(words[words.index("oom_kill") + 1]) > 0


@contextlib.contextmanager
def memory_group(*, limit_bytes: int) -> Iterator[MemoryGroup]:
    """A group of its own; skips the test with the reason where there can be none."""
    place, limit, kills = next((one for one in _PLACES if one[0].is_dir()), _PLACES[1])
    folder = place / f"fleetrank-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            (folder / limit).write_text(str(limit_bytes))
        except OSError as error:
            pytest.skip(f"no control group of memory here: {error}")
        yield MemoryGroup(folder, folder / kills)
    finally:
        folder.rmdir()
