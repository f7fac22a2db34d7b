"""What a host is and what runs on it: told to a driver before it plans anything."""

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
from fleetrank.device_agents.errors import AgentError
from fleetrank.device_agents.host.rapl import open_rapl
from fleetrank.orchestrator.identity.host_identity import host_hash
from fleetrank.orchestrator.identity.provenance import PACKAGES, package_versions

_OWN_PACKAGES = ("analysis", "device_agents", "foundation", "models", "orchestrator")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """A host of the cluster, or this one.

    Attributes:
        host_hash: as rows carry it; names never enter a row.
        one_per_core: a CPU of each physical core, for pinning; `None` where it does not tell.
        versions: of fleetrank, Ray and the runtimes that are installed, as (package, version).
        code_sha256: of fleetrank's own source files, since two checkouts may claim one version.
        niceness: of the host's process, which every worker inherits.
        phones: serials that an adb server of this host sees, in any state; `None` where none runs.
        gpus: UUIDs of NVIDIA GPUs and MIG instances that can run something; `None` where no
            driver answers.
        counts_energy: its processors' energy can be read, which takes windows of its own.
        n_running: tasks under way.
        n_kept: measurements that wait for a driver to store them.
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
    """Reads what this host is; the rest is what its actor knows."""
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
    """Serials that an adb server of this host sees; starts none, and `None` says there is none."""
    try:
        server = AdbServer()
        return tuple(seen.serial for seen in server.devices()) if server.answers() else None
    except AgentError:
        return None  # no adb on this host


def seen_gpus() -> tuple[str, ...] | None:
    """UUIDs of this host's GPUs and MIG instances; `None` where no NVIDIA driver answers."""
    try:
        found = open_nvml().find()
    except AgentError:
        return None  # no driver, or no binding for it
    return tuple(gpu.uuid for gpu in found.gpus if not gpu.is_divided)


@cache
def code_sha256() -> str:
    """Of fleetrank's source files as they were when this process first asked."""
    digest = hashlib.sha256()
    for package in _OWN_PACKAGES:
        spec = find_spec(f"fleetrank.{package}")
        for folder in spec.submodule_search_locations or [] if spec else []:
            root = Path(folder)
            for path in sorted(root.rglob("*.py")):
                digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
