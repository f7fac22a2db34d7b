"""Starts the embedded Ray with settings that do not disturb or change measurements.

Ray makes its folder of sessions, sockets and logs with mode 0777, independent of the umask. So it
gets a folder inside one that no other user of this host can enter.
"""

import contextlib
import functools
import os
import resource
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from fleetrank.device_agents.errors import missing_library
from fleetrank.device_agents.hosts.reach import LOCAL_HOST
from fleetrank.foundation.temporary import LockedFolder, make_temporary_folder
from fleetrank.orchestrator.dispatch.ray_hosts import LABEL
from fleetrank.orchestrator.errors import OrchestratorError

_PURPOSE = "ray"
_MAX_BYTES = 40
"""Longest path given to Ray, so that its socket paths keep within the 107 bytes of Linux:
`/session_2026-11-22_01-36-51_517459_4194304/sockets/plasma_store` has 64; three are spare."""
_INSIDE = "r"
"""Ray changes the mode of the folder it is given, so it gets a folder inside ours."""


def make_ray_folder() -> LockedFolder:
    """Makes a folder of mode 0700 with a folder for Ray inside; the caller removes it.

    Raises:
        OrchestratorError: no folder for temporary files is safe and has a short enough path.
    """
    for place in _places():
        folder = place / "fleetrank-ray-xxxxxxxx" / _INSIDE
        if len(os.fsencode(folder)) > _MAX_BYTES or not _is_safe(place):
            continue
        try:
            return make_temporary_folder(_PURPOSE, place)
        except OSError:
            continue
    raise OrchestratorError(
        "no temporary folder keeps Ray's files safe from other users",
        "give /tmp to root with mode 1777, or set TMPDIR to a folder of yours with a path of at "
        f"most {_MAX_BYTES - len('/fleetrank-ray-xxxxxxxx/r')} bytes, or use `inline=true`",
    )


def inside(folder: Path) -> Path:
    """Returns the folder for Ray's files inside a folder of `make_ray_folder`."""
    return folder / _INSIDE


def _places() -> Iterator[Path]:
    """Folders for temporary files in Ray's order; disk before the memory of a runtime folder."""
    names = ("RAY_TMPDIR", "TMPDIR")
    given = [os.environ.get(name) for name in names]
    for place in (*given, "/tmp", os.environ.get("XDG_RUNTIME_DIR")):  # noqa: S108 - not used as such
        if place and Path(place).is_dir():
            yield Path(place).resolve()


def _is_safe(place: Path) -> bool:
    """Whether no other user can rename or replace our files in a folder.

    It and those above are root's or ours, and not writable by others or sticky.
    """
    for folder in (place, *place.parents):
        found = folder.stat()
        is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        is_sticky = found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.getuid()) or (is_open and not is_sticky):
            return False
    return True


NAMESPACE = "fleetrank"
_FOLDER_WITHOUT_MODULES = Path(__file__).parents[1] / "templates"
_OBJECT_STORE_BYTES = 100_000_000
"""Ray takes 30 % of memory by default; here only small values pass through its store."""
_LEAST_FILES = 128
"""With 40 descriptors Ray waits in silence for a file of a process that has ended; 64 can do."""
_END_S = 10.0
_TOKEN_FILE = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable
_ENVIRONMENT = {
    # The measuring process inherits the worker's niceness and cannot lower it again.
    "RAY_worker_niceness": "0",
    # The same for the kernel's out-of-memory score (Ray's default 1000: killed first).
    "RAY_worker_oom_score_adjustment": "0",
    # Ray's memory monitor would end the actor; our memory limit ends only the worker.
    "RAY_memory_monitor_refresh_ms": "0",
    # Ray sends no usage statistics.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray 2.60 prints a warning about GPU variables at every start; no GPU is requested here.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """Runs a separate Ray for the block, with token authentication, and ends it afterwards.

    Its processes end with this process, also if this process is killed.

    Raises:
        MissingLibraryError: Ray is not installed.
        OrchestratorError: Ray does not start, or already runs in this process.
    """
    set_ray_environment()
    try:
        import ray
    except ImportError as error:
        raise missing_library("Ray", "cluster", error) from error
    _refuse_low_limits()
    if ray.is_initialized():
        raise OrchestratorError("Ray runs in this process already", "call ray.shutdown() first")
    made = make_ray_folder()
    folder = made.path
    with _own_token(folder):
        try:
            with in_own_folder():
                _in_two_tries(
                    lambda: ray.init(
                        address="local",
                        # One prestarted process; fleetrank counts the devices, not Ray.
                        num_cpus=1,
                        object_store_memory=_OBJECT_STORE_BYTES,
                        include_dashboard=False,
                        log_to_driver=False,
                        logging_level="error",
                        namespace=NAMESPACE,
                        labels={LABEL: LOCAL_HOST},
                        _temp_dir=str(inside(folder)),
                    )
                )
        except Exception as error:
            # If a raylet does not start in time, Ray raises a bare `Exception`.
            raise OrchestratorError(
                f"Ray did not start in two tries: {error}",
                f"wait for other programs (the load is {os.getloadavg()[0]:.0f} on "
                f"{os.cpu_count()} CPUs), free memory and space in {folder.parent} (logs: "
                f"{inside(folder)}/session_latest/logs), or use `inline=true`",
            ) from error
        try:
            yield
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
            os.close(made.lock)


def _in_two_tries(start: Callable[[], object]) -> None:
    """Starts Ray; once more if it gives up after its own 30 s, which a busy host can need."""
    before = set(psutil.Process().children(recursive=True))
    try:
        start()
    except Exception:  # as above
        failed = set(psutil.Process().children(recursive=True)) - before
        for process in failed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(failed, _END_S)
        start()


@contextlib.contextmanager
def _own_token(folder: Path) -> Iterator[None]:
    """Makes a token for this process only, in a folder that no other user can enter.

    Ray would write a token into the user's home that every user of the host can read.
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
    """Returns one token per process, because Ray reads the token only once in a process."""
    return secrets.token_hex(32)


def _refuse_low_limits() -> None:
    """Checks limits with which Ray's processes would end without a message after a minute."""
    for kind, least, name, raised in (
        (resource.RLIMIT_FSIZE, _OBJECT_STORE_BYTES, "file size limit in bytes", "-f unlimited"),
        (resource.RLIMIT_NOFILE, _LEAST_FILES, "limit of open files", "-n 4096"),
    ):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < least:
            raise OrchestratorError(
                f"the {name} of this process is {limit}, and Ray needs {least}",
                f"raise the limit (`ulimit {raised}`), or use `inline=true`",
            )


def set_ray_environment() -> None:
    """The environment of every Ray process, including the driver."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@contextlib.contextmanager
def in_own_folder() -> Iterator[None]:
    """Starts Ray in a folder without modules.

    Ray puts its start folder first on its workers' import path. There, a file of the workspace such
    as `numpy.py` would shadow a library.
    """
    former = Path.cwd()
    os.chdir(_FOLDER_WITHOUT_MODULES)
    try:
        yield
    finally:
        os.chdir(former)
