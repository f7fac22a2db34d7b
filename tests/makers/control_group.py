"""Control groups with a limit of memory, or with a quota of CPU time."""

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
    with _group(place, limit, str(limit_bytes)) as folder:
        yield MemoryGroup(folder, folder / kills)


@contextlib.contextmanager
def cpu_quota(*, cores: float) -> Iterator[None]:
    """Puts this process into a group with a quota; skips the test where there can be none."""
    place, limit, text = _ROOT / "cpu", "cpu.cfs_quota_us", f"{int(cores * 100_000)}"
    if not place.is_dir():
        place, limit, text = _ROOT, "cpu.max", f"{text} 100000"
    with _group(place, limit, text) as folder:
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (place / "cgroup.procs").write_text(str(os.getpid()))


@contextlib.contextmanager
def _group(place: Path, limit: str, text: str) -> Iterator[Path]:
    folder = place / f"fleetrank-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            (folder / limit).write_text(text)
        except OSError as error:
            pytest.skip(f"no control group with {limit} here: {error}")
        yield folder
    finally:
        folder.rmdir()
