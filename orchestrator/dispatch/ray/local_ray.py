"""Starts the embedded Ray so that it neither disturbs nor distorts what is measured."""

import contextlib
import functools
import os
import resource
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.orchestrator.dispatch.ray.ray_folder import inside, make_ray_folder
from fleetrank.orchestrator.dispatch.ray.ray_hosts import LABEL
from fleetrank.orchestrator.errors import OrchestratorError

NAMESPACE = "fleetrank"
_FOLDER_WITHOUT_MODULES = Path(__file__).parents[2] / "templates"
LOCAL_HOST = "local"
"""The name of this host in the Ray that is started for one sweep."""
_OBJECT_STORE_BYTES = 100_000_000
"""Ray takes 30 % of memory by default; what passes through here are small values."""
_TOKEN_FILE = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable
_ENVIRONMENT = {
    # A worker hands its niceness down to the measuring process, which cannot lower it again.
    "RAY_worker_niceness": "0",
    # The same for the kernel's choice of what to end first when memory is short (default 1000).
    "RAY_worker_oom_score_adjustment": "0",
    # Ray's memory monitor would end the actor for a model that a limit of our own catches.
    "RAY_memory_monitor_refresh_ms": "0",
    # Nothing is reported to anybody.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray 2.60 announces a change of GPU variables on every start; no GPU is asked for here.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """A Ray of its own for the block: token authentication on, gone at the end.

    Its processes die with this one, however this one ends.

    Raises:
        MissingLibraryError: Ray is not installed.
        OrchestratorError: it does not start, or runs in this process already.
    """
    set_ray_environment()
    try:
        import ray
    except ImportError as error:
        raise MissingLibraryError(
            "Ray is not installed", "pip install 'fleetrank[cluster]', or use --inline"
        ) from error
    _refuse_size_limit()
    if ray.is_initialized():
        raise OrchestratorError("Ray runs in this process already", "call ray.shutdown() first")
    folder = make_ray_folder()
    with _own_token(folder):
        try:
            with in_own_folder():
                ray.init(
                    address="local",
                    # One prestarted process; devices are counted by us, not by Ray.
                    num_cpus=1,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="error",
                    namespace=NAMESPACE,
                    labels={LABEL: LOCAL_HOST},
                    _temp_dir=str(inside(folder)),
                )
        except Exception as error:
            # A raylet that does not come up in time is a bare `Exception` of Ray's.
            raise OrchestratorError(
                f"Ray did not start: {error}",
                f"free memory and space in {folder.parent} (logs: "
                f"{inside(folder)}/session_latest/logs), or use --inline",
            ) from error
        try:
            yield
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _own_token(folder: Path) -> Iterator[None]:
    """A token of this process alone, in the folder that no other user can enter.

    Ray would write one into the user's home, where its mode lets every user of the host read it.
    """
    path = folder / "token"
    path.touch(mode=0o600)
    path.write_text(_token(), encoding="ascii")
    former = os.environ.get(_TOKEN_FILE)
    os.environ[_TOKEN_FILE] = str(path)
    try:
        yield
    finally:
        if former is None:
            del os.environ[_TOKEN_FILE]
        else:
            os.environ[_TOKEN_FILE] = former


@functools.cache
def _token() -> str:
    """Ray reads the token once a process."""
    return secrets.token_hex(32)


def _refuse_size_limit() -> None:
    """Ray's processes end without a word when they meet it, and its start then takes a minute."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit_bytes != resource.RLIM_INFINITY and limit_bytes < _OBJECT_STORE_BYTES:
        raise OrchestratorError(
            f"a file of this process may have {limit_bytes} bytes, and Ray needs files of "
            f"{_OBJECT_STORE_BYTES}",
            "raise the limit (`ulimit -f unlimited`), or use --inline",
        )


def set_ray_environment() -> None:
    """What every process of Ray is to find, the driver's own included."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@contextlib.contextmanager
def in_own_folder() -> Iterator[None]:
    """Starts Ray in a folder without modules.

    Ray puts the folder it is started in first on its workers' import path, where a file of the
    workspace, such as `numpy.py`, would shadow a library.
    """
    former = Path.cwd()
    os.chdir(_FOLDER_WITHOUT_MODULES)
    try:
        yield
    finally:
        os.chdir(former)
