"""Well-known phones as data: the facts that a virtual phone reports."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, Field

from fleetrank.device_agents.errors import PermanentError

DEFAULT_PROFILES = ("pixel-8", "galaxy-s21", "redmi-note-10")
"""The default profiles: three vendors, three speeds, all ready to be measured."""


class Cluster(BaseModel):
    """Cores of one kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cores: int = Field(ge=1)
    min_mhz: int
    max_mhz: int
    part: str
    """The CPU part of /proc/cpuinfo."""


class Profile(BaseModel):
    """One phone of `profiles.toml`.

    Attributes:
        slowness: canned times of this phone as a multiple of the fastest one's.
        has_thermalservice: from Android 10 on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    manufacturer: str
    model: str
    device: str
    soc_manufacturer: str = ""
    soc_model: str = ""
    platform: str
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


@cache
def load_profiles() -> Mapping[str, Profile]:
    """Reads all profiles that ship with fleetrank, by name."""
    text = (
        resources.files("fleetrank.device_agents.virtual_phone")
        .joinpath("profiles.toml")
        .read_text()
    )
    return {name: Profile(**content) for name, content in tomllib.loads(text).items()}


def find_profile(name: str) -> Profile:
    """Returns one profile; raises `PermanentError` that lists the available names."""
    profiles = load_profiles()
    if name not in profiles:
        raise PermanentError(
            f"unknown virtual phone '{name}'", f"choose one of {', '.join(profiles)}"
        )
    return profiles[name]
