"""The folder a confined worker may write to: made and removed by its parent.

The worker imports this too, so it loads only what the worker has anyway: what a process holds
before the model is loaded moves the figures of memory.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from fleetrank.device_agents.contract.task import InferTask, MeasureTask

SCRATCH = "FLEETRANK_SCRATCH"
"""Names the folder in the worker's environment."""

_VARIABLES = (
    SCRATCH, "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH",
)  # fmt: skip
"""Caches of compiled code too: a trusted file must not find there what a hostile one left."""


@contextmanager
def worker_environment(task: MeasureTask | InferTask) -> Iterator[Mapping[str, str] | None]:
    """Environment of the task's worker; `None`, the parent's own, for a trusted task.

    Raises:
        OSError: no folder can be made.
    """
    if task.is_trusted:
        yield None
        return
    scratch = _made()
    try:
        yield {**os.environ, **dict.fromkeys(_VARIABLES, scratch)}
    finally:
        _remove(Path(scratch))


def scratch_of_this_worker() -> str:
    """The folder its parent made; a worker that a person starts by hand makes one, which stays."""
    scratch = os.environ.get(SCRATCH)
    if scratch is None:
        import tempfile

        scratch = _made()
        os.environ.update(dict.fromkeys(_VARIABLES, scratch))
        tempfile.tempdir = scratch
    return scratch


def _made() -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="fleetrank-scratch-")  # mode 0700


def _remove(folder: Path) -> None:
    try:
        remove_tree(folder)
    except OSError as error:
        import logging

        logging.getLogger(__name__).warning("cannot remove %s: %s", folder, error.strerror)


def remove_tree(folder: Path) -> None:
    """Removes a folder whatever was put into it: depth without end, modes of 000, links.

    Folders below move up to the first level before they are emptied, so no path gets long and
    nothing recurses, as `shutil.rmtree` does.

    Raises:
        OSError: something in it belongs to another user.
    """
    folder.chmod(0o700)
    names = (folder / f".{number}" for number in count())
    waiting = _emptied(folder)
    while waiting:
        found = waiting.pop()
        for inner in _emptied(found):
            waiting.append(inner.rename(next(name for name in names if not name.exists())))
        found.rmdir()
    folder.rmdir()


def _emptied(folder: Path) -> list[Path]:
    """Removes what is not a folder, and returns the folders in it, opened for their owner."""
    folders = []
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            Path(entry.path).chmod(0o700)  # also to move it: its `..` changes
            folders.append(Path(entry.path))
        else:
            Path(entry.path).unlink()
    return folders
