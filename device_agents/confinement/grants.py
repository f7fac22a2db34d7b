"""What a confined worker may still open: the list of files, for Landlock and the hook."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import fleetrank.device_agents
import fleetrank.foundation
from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.contract.task import InferTask, MeasureTask, Task
from fleetrank.foundation.vocabulary import Mode

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store", "/gnu/store")
"""Libraries, and the compiler of `torch.compile`; some systems use the last two folders."""
_FACTS = ("/proc", "/sys", "/etc/ld.so.cache", "/etc/localtime", "/dev/zero", "/dev/random",
          "/dev/urandom")  # fmt: skip
"""Runtimes count cores and caches in `/proc` and `/sys`; conditions and memory are read there."""
_GPU_NODES = ("nvidia*", "dxg")
"""In `/dev`. Source: NVIDIA driver's README, "Device files"; WSL2 has the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """Real paths; a folder includes everything below it.

    Attributes:
        installation: libraries and programs: read, loaded, and started if `starts_programs`.
        readable: further files and folders that may be read.
        writable: existing files and device nodes that may be read and written.
        scratch: the only folder where files may be created, changed and removed.
        starts_programs: `torch.compile` runs a C++ compiler.
    """

    installation: tuple[str, ...]
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    scratch: str
    starts_programs: bool


def grants_of(task: Task, scratch: str) -> Grants:
    """Grants of one task; paths that do not exist are omitted."""
    outputs: tuple[str, ...] = ()
    if isinstance(task, InferTask):
        # A grant needs an existing file, and the folder stays closed.
        Path(task.outputs_path).touch()
        outputs = (task.outputs_path,)
    return Grants(
        installation=_existing(*_SYSTEM, *_python()),
        readable=_existing(*_FACTS, *_inputs(task)),
        writable=_existing("/dev/null", *outputs, *_gpu_nodes(task)),
        scratch=os.path.realpath(scratch),
        starts_programs=task.execution.mode is Mode.COMPILE,
    )


def _existing(*paths: str) -> tuple[str, ...]:
    found = set()
    for path in paths:
        with suppress(OSError):
            Path(path).stat()  # `realpath` accepts a missing path, and its `strict` is new in 3.10
            found.add(os.path.realpath(path))
    return tuple(sorted(found))


def _python() -> Iterator[str]:
    """The folders of the interpreter and of its imports, and CUDA if it lies elsewhere.

    Links point only to our code.
    """
    yield from (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    yield from (*fleetrank.device_agents.__path__, *fleetrank.foundation.__path__)
    yield from _narrow((*sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(":")))


def _narrow(folders: Iterable[str]) -> Iterator[str]:
    """The folders of a search path that are absolute and do not contain the user's home."""
    home = Path(os.environ.get("HOME") or "/")
    return (
        folder
        for folder in folders
        if folder.startswith("/") and not home.is_relative_to(os.path.realpath(folder))
    )


def _inputs(task: Task) -> Iterator[str]:
    yield task.artifact_path
    more = (
        task.weights_path,
        task.inputs_path if isinstance(task, InferTask) else None,
        task.primer_path if isinstance(task, MeasureTask) else None,
        task.check_path if isinstance(task, MeasureTask) else None,
    )
    yield from (path for path in more if path is not None)
    yield from (one.values.path for one in task.execution.inputs if one.values.path is not None)


def _gpu_nodes(task: Task) -> Iterator[str]:
    if task.execution.backend in GPU_BACKENDS:
        yield from (str(node) for name in _GPU_NODES for node in Path("/dev").glob(name))
        # Drivers from 570 on name their threads here, and end with error 304 if they may not.
        yield "/proc/self/task"
