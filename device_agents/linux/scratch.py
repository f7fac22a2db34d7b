"""The folder that a confined worker may write to; its parent creates and removes it.

The worker imports this module, so it imports only what the worker needs anyway: objects in the
process before the model is loaded change the memory figures.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fleetrank.device_agents.contract.task import InferTask, MeasureTask

SCRATCH = "FLEETRANK_SCRATCH"
"""Name of the worker's environment variable that contains the folder."""
_VARIABLES = (
    SCRATCH, "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH",
)  # fmt: skip
"""Includes caches of compiled code: a trusted file must not load code that a hostile file left."""
_KEPT = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CC", "CXX",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES", "TF_CPP_MIN_LOG_LEVEL",
})  # fmt: skip
"""The variables that programs need to start; without HOME and USER, libraries read /etc/passwd."""
_KEPT_PREFIXES = (
    "LC_", "PYTHON", "MALLOC_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_",
    "ATEN_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "ORT_", "CUDA_", "CUDNN_",
    "CUBLAS_", "NVIDIA_",
)  # fmt: skip
"""The variables that change what a library computes or how fast; none is for a secret."""


@contextmanager
def worker_environment(task: MeasureTask | InferTask) -> Iterator[Mapping[str, str] | None]:
    """Environment of the task's worker; `None`, the parent's environment, for a trusted task.

    A file from outside gets no variable but the kept ones: others are often keys to something. A
    runtime writes its profile into the folder, also for a trusted task.

    Raises:
        OSError: the folder cannot be created.
    """
    if task.is_trusted and not task.execution.is_profiled:
        yield None
        return
    from fleetrank.foundation.temporary import temporary_folder

    with temporary_folder("scratch") as scratch:
        given = os.environ if task.is_trusted else kept(os.environ)
        yield {**given, **dict.fromkeys(_VARIABLES, str(scratch))}


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a file from outside may know."""
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }


def scratch_of_this_worker() -> str:
    """The folder its parent created; a manually started worker creates one, which stays."""
    scratch = os.environ.get(SCRATCH)
    if scratch is None:
        import tempfile

        scratch = tempfile.mkdtemp(prefix="fleetrank-worker-")  # no lock: see `foundation.files`
        os.environ.update(dict.fromkeys(_VARIABLES, scratch))
        tempfile.tempdir = scratch
    return scratch
