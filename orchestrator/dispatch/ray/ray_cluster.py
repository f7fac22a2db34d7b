"""Connects to a Ray cluster, and says quickly and plainly why it cannot be done."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.orchestrator.dispatch.ray.local_ray import (
    NAMESPACE,
    in_own_folder,
    set_ray_environment,
)
from fleetrank.orchestrator.errors import NothingToDoError, OrchestratorError, UsageError

_ADDRESS = re.compile(r"(?P<host>[^:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_REACH_S = 3.0
_CHECK_S = 20.0
"""Ray's own check takes a second; with a wrong token it would itself go on for twenty."""
AUTO = "auto"
"""The address that means the cluster this host belongs to."""


@contextlib.contextmanager
def cluster_ray(address: str) -> Iterator[str]:
    """A connection to a cluster for the block; gives the address of Ray's dashboard, or nothing.

    The cluster goes on afterwards, and so do the actors on its hosts.

    Args:
        address: `IP:PORT` of the head, or `auto`.

    Raises:
        MissingLibraryError: Ray is not installed.
        UsageError: the address is none, the token is missing or wrong.
        NothingToDoError: nothing answers there, or this host does not belong to it.
        OrchestratorError: Ray does not connect all the same.
    """
    set_ray_environment()
    # Before anything is asked: a driver without a token is refused at once.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError as error:
        raise MissingLibraryError(
            "Ray is not installed", "pip install 'fleetrank[cluster]'"
        ) from error
    address = _checked(address)
    try:
        with in_own_folder():
            context = ray.init(
                address=address, log_to_driver=False, logging_level="error", namespace=NAMESPACE
            )
    except ray.exceptions.AuthenticationError as error:
        raise _no_token(address) from error
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise OrchestratorError(
            f"Ray at {address} cannot be joined: {error}", "`ray status` on its head says more"
        ) from error
    try:
        yield context.dashboard_url or ""
    finally:
        ray.shutdown()


def _checked(address: str) -> str:
    """The address, after making sure that Ray will not wait for minutes.

    Given the address of a cluster that this host does not belong to, Ray 2.60 hangs for over
    99 s; with a wrong token it writes a line a second for 20 s.
    """
    local = _local_clusters()
    if address == AUTO:
        if len(local) != 1:
            found = ", ".join(sorted(local)) or "none"
            raise NothingToDoError(
                f"this host belongs to {len(local)} Ray clusters: {found}",
                "name one with --cluster IP:PORT, after `ray start --address IP:PORT` on this host",
            )
        (address,) = local
    _check_reachable(address)
    _check_token(address)
    if _resolved(address) not in {_resolved(joined) for joined in local}:
        raise NothingToDoError(
            f"this host does not belong to the cluster at {address}",
            f"run `ray start --address {address}` here first; see docs/cluster.md",
        )
    return address


def _local_clusters() -> set[str]:
    """The clusters that a raylet of this host has joined."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words and words[0].endswith("/raylet") and _is_of_this_network(process.pid):
            found |= {w.partition("=")[2] for w in words if w.startswith("--gcs-address=")}
    return found


def _is_of_this_network(pid: int) -> bool:
    """A container's raylet is listed on its host, too, and has other addresses."""
    try:
        return Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    except OSError:
        return True  # no Linux, or not ours to look at


def _check_reachable(address: str) -> None:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise UsageError(
            f"'{address}' is no address of a Ray cluster", "write IP:PORT of its head, or auto"
        )
    host = match["host"].strip("[]")
    try:
        socket.create_connection((host, int(match["port"])), timeout=_REACH_S).close()
    except OSError as error:
        raise NothingToDoError(
            f"nothing answers at {address}: {error}",
            "start the cluster (`ray up cluster.yaml`), or look at the network between",
        ) from error


def _check_token(address: str) -> None:
    """Asks in a process of its own, which can be ended when it begins to repeat itself."""
    if os.environ.get("RAY_AUTH_MODE") == "token" and not _has_token():
        raise _no_token(address)
    command = (sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address)
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_CHECK_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NothingToDoError(
            f"Ray at {address} does not answer", "`ray status` on its head says more"
        ) from error
    if answer.returncode != 0:
        if "AuthenticationError" in answer.stderr or "InvalidAuthToken" in answer.stderr:
            raise _no_token(address)
        last = (answer.stderr.strip() or answer.stdout.strip()).rpartition("\n")[2]
        raise NothingToDoError(
            f"Ray at {address} is not well: {last}", "`ray status` on its head says more"
        )


def _has_token() -> bool:
    """Whether Ray would find one; given an empty one, Ray 2.60 aborts.

    Source: ray get-auth-token --help, and the message of its AuthenticationError.
    """
    if "RAY_AUTH_TOKEN" in os.environ:
        return bool(os.environ["RAY_AUTH_TOKEN"].strip())
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(path) if path else Path.home() / ".ray" / "auth_token"
    return file.is_file() and file.stat().st_size > 0


def _no_token(address: str) -> UsageError:
    return UsageError(
        f"the cluster at {address} wants a token that this host does not have",
        "copy ~/.ray/auth_token of its head here (mode 0600), or set RAY_AUTH_TOKEN_PATH; "
        "see docs/security.md",
    )


def _resolved(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
    return host, port
