"""Converts the probe's output to facts of a phone, and facts to what a row stores."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from fleetrank.device_agents.android.state.clusters import (
    UNKNOWN,
    Topology,
    clusters_of,
    offline_cores,
    parse_topology,
)
from fleetrank.device_agents.android.state.dumpsys import parse_battery, parse_thermal
from fleetrank.device_agents.android.state.phone_cores import Core, parse_cores
from fleetrank.device_agents.android.state.power_text import full_charge_mah
from fleetrank.device_agents.contract.agent import Cluster, DeviceFacts
from fleetrank.device_agents.contract.kind import VirtualMode, origin_of
from fleetrank.device_agents.contract.task import Options
from fleetrank.device_agents.device_output import (
    MEMORY_BYTES,
    STORAGE_BYTES,
    lines_of,
    value_of,
    whole_number,
)
from fleetrank.foundation.cpus import cores_fact
from fleetrank.foundation.vocabulary import Tier


def hash_serial(serial: str) -> str:
    """The hash that replaces a serial number wherever the number must not appear."""
    return hashlib.sha256(serial.encode("utf-8", errors="surrogateescape")).hexdigest()


_ANDROID_ID = re.compile(r"[0-9a-f]{8,16}", re.ASCII)
"""64 random bits since the phone's first start or its last factory reset, without leading zeros.

Source: `Settings.Secure.ANDROID_ID`; SettingsProvider of frameworks/base writes it with
`Long.toHexString`."""


def hash_unit(identity_hash: str, android_id: str | None) -> str | None:
    """The hash of what distinguishes a phone from equal tablets that share its serial number.

    `None` if the phone does not say its `android_id`, or says something else.
    """
    if android_id is None or not _ANDROID_ID.fullmatch(android_id):
        return None
    return hash_serial(f"{identity_hash}\n{android_id}")


def hash_identity(
    serial_hash: str, model: str | None, fingerprint: str | None, avd: str | None
) -> str:
    """The hash of what together names one phone.

    A serial number alone does not: all emulators of a build, and many cheap tablets, share one
    (MarathonLabs/marathon issue 223, camalot/madb issue 1). Of the fingerprint counts the part
    before the first colon (brand/product/device), because each update of the system changes the
    rest.
    """
    build = (fingerprint or "").partition(":")[0]
    return hash_serial("\n".join((serial_hash, model or "", build, avd or "")))


PROPERTIES = (
    "ro.serialno", "ro.boot.serialno", "ro.product.manufacturer", "ro.product.model",
    "ro.product.cpu.abilist", "ro.product.cpu.abi", "ro.soc.manufacturer", "ro.soc.model",
    "ro.hardware.chipname", "ro.chipname", "ro.board.platform", "ro.build.version.release",
    "ro.build.version.sdk", "ro.build.version.incremental", "ro.build.fingerprint",
    "ro.hardware.egl", "ro.fleetrank.virtual", "ro.boot.qemu.avd_name", "ro.kernel.qemu.avd_name",
)  # fmt: skip
MIN_SDK = 26
"""Android 8.0: the first version with `sha256sum`, which is needed to verify pushed files.

Source: `shell_and_utilities/README.md` of platform/system/core.
"""
ABIS = ("arm64-v8a", "armeabi-v7a", "x86_64")
"""The instruction sets of the programs; no program is built for 32-bit x86."""


def virtual_mode(reported: str | None) -> VirtualMode | None:
    """Parses `ro.fleetrank.virtual`; `None` is a real phone, which does not have this property.

    An unknown word, perhaps of another version, counts as `canned`: the phone is not real.
    """
    if not reported:
        return None
    return VirtualMode(reported) if reported in set(VirtualMode) else VirtualMode.CANNED


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneFacts:
    """The facts that a phone reports; `None` or empty means unknown.

    Attributes:
        serial_hash: SHA-256 of the phone's serial number, the same over USB and network. Rows
            store only the hash, never the number.
        build: the incremental version: changes with every update of the system.
        gpu: vendor, renderer and driver, as SurfaceFlinger reports them.
        free_bytes: free space on /data/local/tmp.
        virtual: `None` for a real phone.
        avd: name of an emulator's device; `None` for a phone.
        android_id: random number of the phone since its first start or factory reset.
        full_charge_mah: as `power_text.full_charge_mah`.
    """

    serial_hash: str | None
    manufacturer: str | None
    model: str | None
    soc: str | None
    abis: tuple[str, ...]
    cores: tuple[Core, ...]
    memory_bytes: int | None
    android_release: str | None
    sdk: int | None
    build: str | None
    fingerprint: str | None
    egl: str | None
    gpu: str | None
    has_thermal: bool
    has_battery: bool
    free_bytes: int | None
    has_exit_codes: bool
    has_taskset: bool
    virtual: VirtualMode | None
    topology: Topology = UNKNOWN
    avd: str | None = None
    android_id: str | None = None
    full_charge_mah: float | None = None

    @property
    def identity_hash(self) -> str | None:
        """What no other phone has; `None` without a serial number."""
        if self.serial_hash is None:
            return None
        return hash_identity(self.serial_hash, self.model, self.fingerprint, self.avd)

    @property
    def unit_hash(self) -> str | None:
        """What its twins do not have; `None` if it does not say its `android_id`."""
        identity = self.identity_hash
        return None if identity is None else hash_unit(identity, self.android_id)

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """Cores by their kind, fastest first."""
        return clusters_of(self.cores, self.topology)

    @property
    def offline_cores(self) -> tuple[int, ...]:
        """Cores that were offline when the phone was probed."""
        return offline_cores(self.cores, self.topology)

    @property
    def device_model(self) -> str:
        """Manufacturer and model in one name; many models begin with their manufacturer."""
        maker, model = self.manufacturer or "", self.model or ""
        if model.casefold().split()[:1] == [maker.casefold()]:
            return model
        return " ".join(word for word in (maker, model) if word) or "unknown phone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a phone cannot be used, and what to do about it."""

    reason: str
    remedy: str


def facts_of_sections(sections: Mapping[str, str], *, has_exit_codes: bool) -> PhoneFacts:
    """Reads the sections of the probe's output; a missing section means unknown.

    Raises:
        BadOutputError: an impossible figure.
    """

    def reported(name: str) -> str | None:
        return sections.get(name, "").strip() or None

    serial = reported("ro.serialno") or reported("ro.boot.serialno")
    return PhoneFacts(
        serial_hash=hash_serial(serial) if serial else None,
        manufacturer=reported("ro.product.manufacturer"),
        model=reported("ro.product.model"),
        soc=_soc(
            reported("ro.soc.manufacturer"),
            reported("ro.soc.model"),
            reported("ro.hardware.chipname") or reported("ro.chipname"),
            reported("ro.board.platform"),
        ),
        abis=_abis(reported("ro.product.cpu.abilist") or reported("ro.product.cpu.abi") or ""),
        cores=parse_cores(sections.get("cores", "")),
        topology=parse_topology(sections.get("topology", "")),
        memory_bytes=_kib(value_of(sections.get("memory", ""), "MemTotal")),
        android_release=reported("ro.build.version.release"),
        sdk=whole_number(reported("ro.build.version.sdk") or ""),
        build=reported("ro.build.version.incremental"),
        fingerprint=reported("ro.build.fingerprint"),
        egl=reported("ro.hardware.egl"),
        gpu=value_of(sections.get("gpu", ""), "GLES") or None,
        has_thermal=parse_thermal(sections.get("thermal", "")) is not None,
        has_battery=parse_battery(sections.get("battery", "")) is not None,
        full_charge_mah=full_charge_mah(sections.get("battery", "")),
        free_bytes=free_bytes(sections.get("storage", "")),
        has_exit_codes=has_exit_codes,
        has_taskset=reported("taskset") is not None,
        virtual=virtual_mode(reported("ro.fleetrank.virtual")),
        android_id=reported("android_id"),
        avd=reported("ro.boot.qemu.avd_name") or reported("ro.kernel.qemu.avd_name"),
    )


def why_refused(facts: PhoneFacts) -> Refusal | None:
    """Says why a phone does not meet the programs' requirements, or `None` if it does."""
    if facts.sdk is not None and facts.sdk < MIN_SDK:
        return Refusal(
            reason=f"Android {facts.android_release} (SDK {facts.sdk}) is too old; "
            f"SDK {MIN_SDK} (Android 8.0) is the first version that can verify pushed files",
            remedy="update the phone's system, or use another phone",
        )
    if facts.abis and not set(facts.abis) & set(ABIS):
        return Refusal(
            reason=f"no program is built for its instruction sets: {', '.join(facts.abis)}",
            remedy=f"use a phone with one of {', '.join(ABIS)}",
        )
    absent = [
        (fact, name)
        for fact, name, value in (
            ("SDK level", "ro.build.version.sdk", facts.sdk),
            ("instruction sets", "ro.product.cpu.abilist", facts.abis),
        )
        if not value
    ]
    if absent:
        return Refusal(
            reason=f"it reports no {' and no '.join(fact for fact, _ in absent)}, "
            "so it is not an Android phone that can be used",
            remedy=f"check with `adb shell getprop {absent[0][1]}`",
        )
    return None


def to_device_facts(facts: PhoneFacts, *, adb_version: str) -> DeviceFacts:
    """What a row stores about a phone; only the hash of the serial number is stored."""
    clocks = [cluster.max_mhz for cluster in facts.clusters if cluster.max_mhz is not None]
    governors = {core.governor for core in facts.cores if core.governor is not None}
    return DeviceFacts(
        device_model=facts.device_model,
        tier=Tier.EDGE,
        origin=origin_of(facts.virtual),
        os=f"Android {facts.android_release or '?'}",
        arch=facts.abis[0] if facts.abis else "unknown",
        cpu_model=facts.soc,
        logical_cores=len(facts.cores) or None,
        memory_bytes=facts.memory_bytes,
        clock_max_mhz=max(clocks, default=None),
        governor=",".join(sorted(governors)) or None,
        extra=_extra(facts, adb_version),
    )


_STORED = (
    "build", "egl", "fingerprint", "gpu", "has_battery", "has_exit_codes", "has_thermal", "sdk",
    "serial_hash",
)  # fmt: skip


def _extra(facts: PhoneFacts, adb_version: str) -> Options:
    clusters = (f"{len(c.cores)}x{c.max_mhz or 0:.0f}" for c in facts.clusters if c.max_mhz)
    known: dict[str, str | int | bool | None] = {
        "abis": ",".join(facts.abis),
        "adb_version": adb_version,
        "clusters_mhz": "+".join(clusters),
        **cores_fact(tuple(one.cores for one in facts.clusters)),
        "virtual": facts.virtual.value if facts.virtual else None,
        **{name: getattr(facts, name) for name in _STORED},
    }
    return tuple(sorted((name, value) for name, value in known.items() if value not in (None, "")))


def _soc(
    manufacturer: str | None, model: str | None, chip: str | None, platform: str | None
) -> str | None:
    """Since Android 12 phones report their chip; before, some makers do, or only a code name.

    One code name can stand for several chips: `exynos5` is that of Exynos 7420, 8890 and 9810.
    """
    named = " ".join(word for word in (manufacturer, model) if word)
    return named if model else chip or platform


def _abis(text: str) -> tuple[str, ...]:
    return tuple(abi.strip() for abi in text.split(",") if abi.strip())


def _kib(text: str | None) -> int | None:
    """A size as `/proc/meminfo` gives it, in bytes."""
    number, _, unit = (text or "").partition(" ")
    kib = whole_number(number)
    if kib is None or unit.strip() != "kB":
        return None
    MEMORY_BYTES.require(kib * 1024, text or "")
    return kib * 1024


def free_bytes(text: str) -> int | None:
    """Free space in the file system of the one path; `None` if the text has another form.

    A row ends with blocks, used, available, per cent, mount point. It may be wrapped after a
    long name.

    Source: toybox 0.8 (Android 8 to 15) and GNU coreutils 9.

    Raises:
        BadOutputError: an impossible figure.
    """
    for line in (line for line in lines_of(text) if "%" in line):
        words = line.split()
        for at, (share, mount) in enumerate(pairwise(words)):
            if at >= 3 and _is_share(share) and mount.startswith("/"):
                blocks, used, free = map(whole_number, words[at - 3 : at])
                if free is not None and None not in (blocks, used) and free >= 0:
                    STORAGE_BYTES.require(free * 1024, line.strip())
                    return free * 1024
    return None


def _is_share(word: str) -> bool:
    digits = word.removesuffix("%")
    return word.endswith("%") and digits.isascii() and digits.isdigit()
