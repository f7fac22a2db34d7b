"""Well-known phones as data: `profiles.toml`, read."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fleetrank.device_agents.errors import PermanentError

DEFAULT_PROFILES = ("pixel-8", "galaxy-s21", "redmi-note-10")
"""The default profiles: three vendors, three speeds, all ready to be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Cores of one kind."""

    cores: int
    min_mhz: int
    max_mhz: int
    part: str
    """The CPU part of /proc/cpuinfo."""
    implementer: str = "0x41"
    rest_cap_mhz: int | None = None
    """The highest allowed clock while no program measures; by default it is `max_mhz`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """How a phone reports its battery; every maker does it in another way.

    Attributes:
        has_files: the shell may read the kernel's files; else `dumpsys` alone says something.
        charge_unit_uah: 1 by the platform's definition, 1000 for a maker that reports mAh.
        charge_step_uah: the smallest change of the charge.
        current_unit_ua: 1, or 1000 for a maker that reports mA; 0 for one that reports none.
        current_sign: of a current that leaves the battery.
        has_rails: the meters of the supply's rails can be read.
    """

    has_files: bool = False
    charge_unit_uah: int = 1
    charge_step_uah: int = 1000
    current_unit_ua: int = 0
    current_sign: int = -1
    has_rails: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One phone of `profiles.toml`.

    Attributes:
        slowness: canned times of this phone as a multiple of the fastest one's.
        has_thermalservice: from Android 10 on.
    """

    manufacturer: str
    model: str
    device: str
    soc_manufacturer: str = ""
    soc_model: str = ""
    platform: str
    chipname: str = ""
    abilist: str
    release: str
    sdk: int
    incremental: str
    egl: str
    gles: str
    memory_mib: int
    free_mib: int
    slowness: float
    has_thermalservice: bool = True
    features: tuple[str, ...]
    protocol_version: int = 0x01000001
    max_payload_bytes: int = 1024 * 1024
    clusters: tuple[Cluster, ...]
    gauge: Gauge = Gauge()


@cache
def load_profiles() -> Mapping[str, Profile]:
    """Reads all profiles, by name."""
    tables = tomllib.loads(Path(__file__).with_name("profiles.toml").read_text())
    for table in tables.values():
        table["features"] = tuple(table["features"])
        table["clusters"] = tuple(Cluster(**cluster) for cluster in table["clusters"])
        table["gauge"] = Gauge(**table.get("gauge", {}))
    return {name: Profile(**table) for name, table in tables.items()}


def find_profile(name: str) -> Profile:
    """Returns one profile; raises `PermanentError` that lists the available names."""
    profiles = load_profiles()
    if name not in profiles:
        raise PermanentError(
            f"unknown virtual phone '{name}'", f"choose one of {', '.join(profiles)}"
        )
    return profiles[name]
