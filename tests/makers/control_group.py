"""A control group with a quota of CPU time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def cpu_quota(*, cores: float) -> Iterator[None]:
    """Puts this process into a group with a quota; skips the test where there can be none."""
    place, limit, text = _ROOT / "cpu", "cpu.cfs_quota_us", f"{int(cores * 100_000)}"
    if not place.is_dir():
        place, limit, text = _ROOT, "cpu.max", f"{text} 100000"
    folder = place / f"fleetrank-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(text)
        (folder / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group with {limit} here: {error}")
    try:
        yield
    finally:
        (place / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()
