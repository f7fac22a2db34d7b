"""The folder that a confined worker may write to; its parent creates and removes it.

The worker imports this module too, so it imports only what the worker needs anyway: objects in the
process before the model is loaded change the memory figures.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from fleetrank.device_agents.contract.task import InferTask, MeasureTask

SCRATCH = "FLEETRANK_SCRATCH"
"""Name of the worker's environment variable that contains the folder."""

_VARIABLES = (
    SCRATCH, "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH",
)  # fmt: skip
"""Includes caches of compiled code: a trusted file must not load code that a hostile file left."""


@contextmanager
def worker_environment(task: MeasureTask | InferTask) -> Iterator[Mapping[str, str] | None]:
    """Environment of the task's worker; `None`, the parent's environment, for a trusted task.

    A runtime writes its profile into the folder, also for a trusted task.

    Raises:
        OSError: the folder cannot be created.
    """
    is_profiled = isinstance(task, MeasureTask) and task.is_profiled
    if task.is_trusted and not is_profiled:
        yield None
        return
    scratch = _made()
    try:
        yield {**os.environ, **dict.fromkeys(_VARIABLES, scratch)}
    finally:
        _remove(Path(scratch))


def scratch_of_this_worker() -> str:
    """The folder its parent created; a manually started worker creates one, which stays."""
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
    """Removes a folder whatever it contains: unlimited depth, modes of 000, links.

    Inner folders are moved up to the first level before they are emptied, so no path becomes long
    and the function does not recurse as `shutil.rmtree` does.

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
    """Removes everything except folders, and returns the folders in it, opened for their owner."""
    folders = []
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            Path(entry.path).chmod(0o700)  # also needed to move it: its `..` changes
            folders.append(Path(entry.path))
        else:
            Path(entry.path).unlink()
    return folders
