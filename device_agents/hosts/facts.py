"""Facts of a host and its running tasks; a driver reads them before it plans a sweep."""

import hashlib
import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fleetrank.device_agents.linux import control_groups, cores, cpu_facts
from fleetrank.device_agents.linux.energy import open_rapl
from fleetrank.device_agents.registry import KINDS
from fleetrank.foundation.cpus import Kinds
from fleetrank.foundation.installation import PACKAGES, host_hash, package_versions

Seen = tuple[tuple[str, tuple[str, ...] | None], ...]
"""By kind: addresses of the devices that a host sees; `None` if it cannot be known."""
_OWN_PACKAGES = ("analysis", "device_agents", "foundation", "models", "orchestrator")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Facts of a host of the cluster, or of this host.

    Attributes:
        host_hash: the hash that rows contain; a row never contains the host's name.
        one_per_core: one CPU of each physical core, for pinning; `None` if unknown.
        kinds: its CPUs by kind and socket; empty in older records.
        versions: installed fleetrank, Ray and runtimes, as (package, version).
        code_sha256: hash of fleetrank's source files, because two checkouts can have the same
            version.
        niceness: niceness of the host's process; every worker inherits it.
        seen: the devices that the host sees, by kind; empty if they were not asked for.
        counts_energy: its processors' energy can be read; this needs separate energy windows.
        memory_bytes: its memory; `None` if unknown, as in older records.
        cpu_quota_cores: as `control_groups.cpu_quota_cores`.
        clock_ahead_s: of its clock, when it was met; below 0 it is behind. Less than the answer
            took is 0.
        n_running: tasks in flight.
        n_kept: measurements that no driver has acknowledged yet.
    """

    host_hash: str
    one_per_core: tuple[int, ...] | None
    python_version: str
    versions: tuple[tuple[str, str], ...]
    code_sha256: str
    niceness: int
    kinds: Kinds = ()
    seen: Seen = ()
    counts_energy: bool = False
    memory_bytes: int | None = None
    cpu_quota_cores: float | None = None
    clock_ahead_s: float = 0.0
    n_running: int = 0
    n_kept: int = 0


def read_host_facts() -> HostFacts:
    """Reads the facts of this host; its actor supplies what it sees and counts."""
    return HostFacts(
        host_hash=host_hash(),
        one_per_core=cores.cpus_one_per_core(),
        kinds=cores.kinds_of_cores(),
        python_version=sys.version.split()[0],
        versions=tuple(sorted(package_versions(["fleetrank", *PACKAGES]).items())),
        code_sha256=code_sha256(),
        niceness=os.nice(0),
        counts_energy=open_rapl() is not None,
        memory_bytes=cpu_facts.memory_bytes(),
        cpu_quota_cores=control_groups.cpu_quota_cores(),
    )


def seen_devices() -> Seen:
    """The devices that this host sees now, of each kind that can be seen."""
    return tuple(
        (name, one.presence.seen_here()) for name, one in KINDS.items() if one.presence is not None
    )


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
