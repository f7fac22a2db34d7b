"""Facts of a host and its running tasks; a driver reads them before it plans a sweep."""

import hashlib
import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fleetrank.device_agents.android.adb.adb_server import AdbServer
from fleetrank.device_agents.cpu import topology
from fleetrank.device_agents.cuda.nvml import open_nvml
from fleetrank.device_agents.host.energy import open_rapl
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.identity.host_identity import host_hash
from fleetrank.orchestrator.identity.provenance import PACKAGES, package_versions

_OWN_PACKAGES = ("analysis", "device_agents", "foundation", "models", "orchestrator")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Facts of a host of the cluster, or of this host.

    Attributes:
        host_hash: the hash that rows contain; a row never contains the host's name.
        one_per_core: one CPU of each physical core, for pinning; `None` if unknown.
        versions: installed fleetrank, Ray and runtimes, as (package, version).
        code_sha256: hash of fleetrank's source files, because two checkouts can have the same
            version.
        niceness: niceness of the host's process; every worker inherits it.
        phones: serials that the host's adb server lists, in any state; `None` if no server runs.
        gpus: UUIDs of usable NVIDIA GPUs and MIG instances; `None` if no driver answers.
        counts_energy: its processors' energy can be read; this needs separate energy windows.
        n_running: tasks in flight.
        n_kept: measurements that no driver has acknowledged yet.
    """

    host_hash: str
    one_per_core: tuple[int, ...] | None
    python_version: str
    versions: tuple[tuple[str, str], ...]
    code_sha256: str
    niceness: int
    phones: tuple[str, ...] | None = None
    gpus: tuple[str, ...] | None = None
    counts_energy: bool = False
    n_running: int = 0
    n_kept: int = 0


def read_host_facts(
    *,
    phones: tuple[str, ...] | None = None,
    gpus: tuple[str, ...] | None = None,
    n_running: int = 0,
    n_kept: int = 0,
) -> HostFacts:
    """Reads the facts of this host; its actor supplies the arguments."""
    return HostFacts(
        host_hash=host_hash(),
        one_per_core=topology.cpus_one_per_core(),
        python_version=sys.version.split()[0],
        versions=tuple(sorted(package_versions(["fleetrank", *PACKAGES]).items())),
        code_sha256=code_sha256(),
        niceness=os.nice(0),
        phones=phones,
        gpus=gpus,
        counts_energy=open_rapl() is not None,
        n_running=n_running,
        n_kept=n_kept,
    )


def seen_phones() -> tuple[str, ...] | None:
    """Serials that this host's adb server lists; starts no server, `None` if no server runs."""
    try:
        server = AdbServer()
        return tuple(seen.serial for seen in server.devices()) if server.answers() else None
    except FleetError:
        return None  # no adb on this host


def seen_gpus() -> tuple[str, ...] | None:
    """UUIDs of this host's GPUs and MIG instances; `None` if no NVIDIA driver answers."""
    try:
        found = open_nvml().find()
    except FleetError:
        return None  # no driver, or no binding for it
    return tuple(gpu.uuid for gpu in found.gpus if not gpu.is_divided)


@cache
def code_sha256() -> str:
    """Hash of fleetrank's source files at the first call in this process."""
    digest = hashlib.sha256()
    for package in _OWN_PACKAGES:
        spec = find_spec(f"fleetrank.{package}")
        for folder in spec.submodule_search_locations or [] if spec else []:
            root = Path(folder)
            for path in sorted(root.rglob("*.py")):
                digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
