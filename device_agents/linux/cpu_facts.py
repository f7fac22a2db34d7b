"""The CPU of this host: parsed from text, read from procfs and sysfs."""

import os
import platform
import re
from pathlib import Path

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.linux.conditions import ROOT, read_clock_max_mhz, read_governor
from fleetrank.device_agents.linux.control_groups import cpu_quota_cores
from fleetrank.device_agents.linux.cores import kinds_of_cores, read_siblings
from fleetrank.device_agents.linux.worker_process import text_of
from fleetrank.foundation.cpus import cores_fact
from fleetrank.foundation.vocabulary import Origin, Tier

_MODEL = re.compile(r"^(?:model name|Model|Hardware)[ \t]*:(.*)$", re.MULTILINE)
_FLAGS = re.compile(r"^flags[ \t]*:(.*)$", re.MULTILINE)


def parse_cpu_model(cpuinfo: str) -> str | None:
    """The CPU's name in `/proc/cpuinfo`; many ARM systems do not have it."""
    names = (match[1].strip() for match in _MODEL.finditer(cpuinfo))
    return next((name for name in names if name), None)


def parse_is_virtual(cpuinfo: str) -> bool | None:
    """Whether the CPU reports a hypervisor; `None` on CPUs that never report it (not x86)."""
    match = _FLAGS.search(cpuinfo)
    return "hypervisor" in match.group(1).split() if match else None


def read_facts(root: Path = ROOT) -> DeviceFacts:
    """Facts about this host's CPU."""
    cpuinfo = text_of(root / "proc/cpuinfo")
    model = parse_cpu_model(cpuinfo)
    quota, kinds = cpu_quota_cores(root), kinds_of_cores(root)
    extra = cores_fact(kinds) | ({} if quota is None else {"cpu_quota_cores": quota})
    siblings = {cpus for cpus in read_siblings(root).values() if cpus}
    return DeviceFacts(
        device_model=model or f"{platform.machine()} CPU",
        tier=Tier.CPU,
        origin=Origin.MEASURED,
        os=f"{platform.system()} {platform.release()}",
        arch=platform.machine(),
        cpu_model=model,
        logical_cores=os.cpu_count(),
        physical_cores=len(siblings) or None,
        memory_bytes=memory_bytes(),
        clock_max_mhz=read_clock_max_mhz(root),
        governor=read_governor(root),
        is_virtual_machine=parse_is_virtual(cpuinfo),
        extra=tuple(extra.items()),
    )


def memory_bytes() -> int | None:
    """Memory of this host; `None` if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
