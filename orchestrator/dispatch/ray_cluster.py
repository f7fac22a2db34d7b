"""Connects to a Ray cluster; on failure it reports the reason within seconds."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from fleetrank.device_agents.errors import missing_library
from fleetrank.foundation.errors import failing_as
from fleetrank.orchestrator.dispatch.local_ray import NAMESPACE, in_own_folder, set_ray_environment
from fleetrank.orchestrator.errors import NothingToDoError, OrchestratorError, UsageError

_ADDRESS = re.compile(r"(?P<host>[^:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_REACH_S = 3.0
_CHECK_S = 20.0
"""Ray's own check takes 1 s; with a wrong token it would take 20 s."""
AUTO = "auto"
"""The address that stands for the cluster this host belongs to."""


@contextlib.contextmanager
def cluster_ray(address: str) -> Iterator[str]:
    """Connects to a cluster for the block; gives the address of Ray's dashboard, if it has one.

    The cluster and the actors on its hosts keep running afterwards.

    Args:
        address: `IP:PORT` of the head, or `auto`.

    Raises:
        MissingLibraryError: Ray is not installed.
        UsageError: the address is not valid, or the token is missing or wrong.
        NothingToDoError: nothing answers at the address, or this host is not in the cluster.
        OrchestratorError: Ray does not connect for another reason.
    """
    set_ray_environment()
    # Before any question, because Ray rejects a driver without a token at once.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError as error:
        raise missing_library("Ray", "cluster", error) from error
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
            f"cannot connect to Ray at {address}: {error}", "run `ray status` on its head"
        ) from error
    try:
        yield context.dashboard_url or ""
    finally:
        ray.shutdown()


def _checked(address: str) -> str:
    """Returns the address, after checks that keep Ray from waiting for minutes.

    With the address of a cluster that this host does not belong to, Ray 2.60 hangs for over 99 s.
    With a wrong token it writes one line per second for 20 s.
    """
    local = _local_clusters()
    if address == AUTO:
        if len(local) != 1:
            found = ", ".join(sorted(local)) or "none"
            raise NothingToDoError(
                f"this host belongs to {len(local)} Ray clusters: {found}",
                "name one with `cluster=IP:PORT`, after `ray start --address IP:PORT` on this host",
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
    """Returns the clusters that this host's raylets have joined."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words and words[0].endswith("/raylet") and _is_of_this_network(process.pid):
            found |= {w.partition("=")[2] for w in words if w.startswith("--gcs-address=")}
    return found


def _is_of_this_network(pid: int) -> bool:
    """Whether a raylet is in our network namespace; a container's raylet has other addresses."""
    try:
        return Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    except OSError:
        return True  # not Linux, or no permission to read it


def _check_reachable(address: str) -> None:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise UsageError(
            f"'{address}' is not an address of a Ray cluster", "give IP:PORT of its head, or auto"
        )
    host = match["host"].strip("[]")
    remedy = "start the cluster (`ray up cluster.yaml`), or check the network"
    with failing_as(NothingToDoError, f"nothing answers at {address}", remedy, OSError):
        socket.create_connection((host, int(match["port"])), timeout=_REACH_S).close()


def _check_token(address: str) -> None:
    """Asks in a separate process, which can be ended when it starts to repeat its message."""
    if os.environ.get("RAY_AUTH_MODE") == "token" and not _has_token():
        raise _no_token(address)
    command = (sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address)
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_CHECK_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NothingToDoError(
            f"Ray at {address} does not answer", "run `ray status` on its head"
        ) from error
    if answer.returncode != 0:
        if "AuthenticationError" in answer.stderr or "InvalidAuthToken" in answer.stderr:
            raise _no_token(address)
        last = (answer.stderr.strip() or answer.stdout.strip()).rpartition("\n")[2]
        raise NothingToDoError(
            f"Ray at {address} reports an error: {last}", "run `ray status` on its head"
        )


def _has_token() -> bool:
    """Whether Ray would find a token; Ray 2.60 aborts if the token is empty.

    Source: ray get-auth-token --help, and the message of its AuthenticationError.
    """
    if "RAY_AUTH_TOKEN" in os.environ:
        return bool(os.environ["RAY_AUTH_TOKEN"].strip())
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(path) if path else Path.home() / ".ray" / "auth_token"
    return file.is_file() and file.stat().st_size > 0


def _no_token(address: str) -> UsageError:
    return UsageError(
        f"the cluster at {address} needs a token that this host does not have",
        "copy ~/.ray/auth_token of its head here (mode 0600), or set RAY_AUTH_TOKEN_PATH; "
        "see docs/security.md",
    )


def _resolved(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
    return host, port
