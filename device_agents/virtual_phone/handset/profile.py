"""Well-known phones as data, and the texts of their services and kernel files; pure.

The formats follow `BatteryService.java`, `ThermalManagerService.java` and
`PowerManagerService.java` of frameworks/base; written by hand, not recorded. Only the values that
fleetrank reads have a meaning here.
"""

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, Field

from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.virtual_phone.handset.faults import Fault

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
    implementer: str = "0x41"
    rest_cap_mhz: int | None = None
    """The highest allowed clock while no program measures; by default it is `max_mhz`."""


class Gauge(BaseModel):
    """How a phone reports its battery; every maker does it in another way.

    Attributes:
        has_files: the shell may read the kernel's files; else `dumpsys` alone says something.
        charge_unit_uah: 1 by the platform's definition, 1000 for a maker that reports mAh.
        charge_step_uah: the smallest change of the charge.
        current_unit_ua: 1, or 1000 for a maker that reports mA; 0 for one that reports none.
        current_sign: of a current that leaves the battery.
        has_rails: the meters of the supply's rails can be read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    has_files: bool = False
    charge_unit_uah: int = 1
    charge_step_uah: int = 1000
    current_unit_ua: int = 0
    current_sign: int = -1
    has_rails: bool = False


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


THROTTLED_SHARE = 0.6
"""Share of the highest clock, under the faults that limit it."""
_CAPPING = frozenset({Fault.THROTTLED, Fault.LOW_CAPS_AT_REST, Fault.FALLING_CAPS})


def thermal_dump(faults: Collection[Fault]) -> str:
    """`dumpsys thermalservice`; the cached section is old on purpose, as on many phones."""
    status = _thermal_status(faults)
    is_hot = Fault.HOT in faults
    cpu, skin = (88.4, 52.0) if is_hot else (41.2, 31.7)
    battery_c = 46.2 if is_hot else 39.0 if Fault.WARM in faults else 28.7
    if Fault.HAL_NOT_READY in faults:
        return "IsStatusOverride: false\nThermal Status: 0\nHAL Ready: false\n"
    has_nan = Fault.NAN_SENSOR in faults
    nan = "\tTemperature{mValue=NaN, mType=3, mName=disp_therm, mStatus=0}\n" if has_nan else ""
    return f"""IsStatusOverride: false
ThermalEventListeners:
\tcallbacks: 2
\tkilled: false
\tbroadcasts count: -1
Thermal Status: {status}
Cached temperatures:
\tTemperature{{mValue=65.0, mType=0, mName=CPU0, mStatus=0}}
\tTemperature{{mValue=25.1, mType=3, mName=skin, mStatus=0}}
HAL Ready: true
HAL connection:
\tThermalHAL 2.0 connected: yes
Current temperatures from HAL:
{nan}\tTemperature{{mValue={cpu}, mType=0, mName=CPU0, mStatus=0}}
\tTemperature{{mValue={cpu - 2.5:.1f}, mType=1, mName=GPU0, mStatus=0}}
\tTemperature{{mValue={battery_c}, mType=2, mName=battery, mStatus=0}}
\tTemperature{{mValue={skin}, mType=3, mName=skin, mStatus={status}}}
Current cooling devices from HAL:
\tCoolingDevice{{mValue={2 if status else 0}, mType=2, mName=thermal-cpufreq-0}}
Temperature static thresholds from HAL:
"""


def power_dump(faults: Collection[Fault] = ()) -> str:
    """`dumpsys power`, in the form of Android 9 and later."""
    dozes = Fault.DOZES in faults
    return f"""POWER MANAGER (dumpsys power)

Power Manager State:
  mWakefulness={"Dozing" if dozes else "Awake"}
  mWakefulnessChanging=false
  mLightDeviceIdleMode=false
  mDeviceIdleMode={"true" if dozes else "false"}
  mIsPowered=true
  mStayOn=false
  mBatteryLevel=84
Display Power: state=ON
Battery saver state machine:
  Enabled={"true" if Fault.BATTERY_SAVER in faults else "false"}
    full=false
"""


def display_dump() -> str:
    """`dumpsys display` of a phone whose screen is on."""
    return "DISPLAY MANAGER (dumpsys display)\n  mScreenState=ON\n"


def surface_flinger_dump(profile: Profile) -> str:
    """The one line of `dumpsys SurfaceFlinger` that names the GPU."""
    return f"Build configuration: [sf]\nGLES: {profile.gles}\n"


def online_cores(profile: Profile, faults: Collection[Fault]) -> int:
    """How many cores are online, counted from 0: all, or those of the small cluster."""
    clusters = profile.clusters[:1] if Fault.CORES_OFFLINE in faults else profile.clusters
    return sum(cluster.cores for cluster in clusters)


def kernel_files(
    profile: Profile, faults: Collection[Fault], *, is_running: bool = False
) -> Mapping[str, str]:
    """Files under /sys and /proc that do not change by themselves, by path without first slash."""
    cores = [cluster for cluster in profile.clusters for _ in range(cluster.cores)]
    online = online_cores(profile, faults)
    files = {
        "sys/devices/system/cpu/online": f"0-{online - 1}\n",
        "proc/cpuinfo": _cpuinfo(cores[:online]),
        "proc/meminfo": _meminfo(profile),
        "proc/loadavg": "0.62 0.71 0.80 1/1204 9031\n",
        "proc/version": "Linux version 5.15.110-android14 (virtual phone of fleetrank)\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-0-0\n",
        "sys/class/thermal/thermal_zone0/temp": "88400\n" if Fault.HOT in faults else "41200\n",
        "sys/class/thermal/thermal_zone1/type": "battery\n",
        "sys/class/thermal/thermal_zone1/temp": "46200\n" if Fault.HOT in faults else "28700\n",
    }
    for name in ("present", "possible"):
        files[f"sys/devices/system/cpu/{name}"] = f"0-{len(cores) - 1}\n"
    for number, cluster in enumerate(cores[:online]):
        related = " ".join(str(at) for at, other in enumerate(cores) if other is cluster)
        clocks = _cpufreq(cluster, faults, is_running=is_running)
        for name, text in (clocks | {"related_cpus": related}).items():
            files[f"sys/devices/system/cpu/cpu{number}/cpufreq/{name}"] = f"{text}\n"
    return files


def _thermal_status(faults: Collection[Fault]) -> int:
    if Fault.HOT in faults:
        return 3
    return 2 if Fault.THROTTLED in faults else 0


def _cpufreq(cluster: Cluster, faults: Collection[Fault], *, is_running: bool) -> dict[str, str]:
    low, high = cluster.min_mhz * 1000, cluster.max_mhz * 1000
    allowed = high if is_running else (cluster.rest_cap_mhz or cluster.max_mhz) * 1000
    cap = allowed if _CAPPING.isdisjoint(faults) else int(high * THROTTLED_SHARE)
    return {
        "cpuinfo_min_freq": str(low),
        "cpuinfo_max_freq": str(high),
        "scaling_min_freq": str(low),
        "scaling_max_freq": str(cap),
        "scaling_cur_freq": str(cap),
        "scaling_governor": "schedutil",
        "scaling_available_frequencies": f"{low} {(low + high) // 2} {high}",
    }


def _cpuinfo(cores: list[Cluster]) -> str:
    return "".join(
        f"processor\t: {number}\nBogoMIPS\t: 49.15\n"
        "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp\n"
        f"CPU implementer\t: {cluster.implementer}\nCPU architecture: 8\n"
        f"CPU part\t: {cluster.part}\n\n"
        for number, cluster in enumerate(cores)
    )


def _meminfo(profile: Profile) -> str:
    total_kib = profile.memory_mib * 1024
    facts = {"MemTotal": total_kib, "MemFree": total_kib // 8, "MemAvailable": total_kib // 2}
    return "".join(f"{name + ':':<16}{kib:>8} kB\n" for name, kib in facts.items())
