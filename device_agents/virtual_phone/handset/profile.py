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


THROTTLED_SHARE = 0.6
"""Share of the highest clock, under `Fault.THROTTLED`."""


def battery_dump(faults: Collection[Fault]) -> str:
    """`dumpsys battery`."""
    is_low = Fault.BATTERY_LOW in faults
    return f"""Current Battery Service state:
  AC powered: false
  USB powered: {"false" if is_low else "true"}
  Wireless powered: false
  Max charging current: 500000
  Max charging voltage: 5000000
  Charge counter: 2712000
  status: {3 if is_low else 2}
  health: 2
  present: true
  level: {12 if is_low else 84}
  scale: 100
  voltage: 4190
  temperature: {462 if Fault.HOT in faults else 287}
  technology: Li-ion
"""


def thermal_dump(faults: Collection[Fault]) -> str:
    """`dumpsys thermalservice`; the cached section is old on purpose, as on many phones."""
    status = _thermal_status(faults)
    is_hot = Fault.HOT in faults
    cpu, skin = (88.4, 52.0) if is_hot else (41.2, 31.7)
    battery_c = 46.2 if is_hot else 28.7
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
\tTemperature{{mValue={cpu}, mType=0, mName=CPU0, mStatus=0}}
\tTemperature{{mValue={cpu - 2.5:.1f}, mType=1, mName=GPU0, mStatus=0}}
\tTemperature{{mValue={battery_c}, mType=2, mName=battery, mStatus=0}}
\tTemperature{{mValue={skin}, mType=3, mName=skin, mStatus={status}}}
Current cooling devices from HAL:
\tCoolingDevice{{mValue={2 if status else 0}, mType=2, mName=thermal-cpufreq-0}}
Temperature static thresholds from HAL:
"""


def power_dump() -> str:
    """`dumpsys power` of a phone whose screen is on."""
    return """POWER MANAGER (dumpsys power)

Power Manager State:
  mWakefulness=Awake
  mWakefulnessChanging=false
  mIsPowered=true
  mStayOn=false
  mBatteryLevel=84
Display Power: state=ON
"""


def display_dump() -> str:
    """`dumpsys display` of a phone whose screen is on."""
    return "DISPLAY MANAGER (dumpsys display)\n  mScreenState=ON\n"


def surface_flinger_dump(profile: Profile) -> str:
    """The one line of `dumpsys SurfaceFlinger` that names the GPU."""
    return f"Build configuration: [sf]\nGLES: {profile.gles}\n"


def kernel_files(profile: Profile, faults: Collection[Fault]) -> Mapping[str, str]:
    """Files under /sys and /proc that do not change by themselves, by path without first slash."""
    cores = [cluster for cluster in profile.clusters for _ in range(cluster.cores)]
    files = {
        "proc/cpuinfo": _cpuinfo(cores),
        "proc/meminfo": _meminfo(profile),
        "proc/loadavg": "0.62 0.71 0.80 1/1204 9031\n",
        "proc/version": "Linux version 5.15.110-android14 (virtual phone of fleetrank)\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-0-0\n",
        "sys/class/thermal/thermal_zone0/temp": "88400\n" if Fault.HOT in faults else "41200\n",
        "sys/class/thermal/thermal_zone1/type": "battery\n",
        "sys/class/thermal/thermal_zone1/temp": "46200\n" if Fault.HOT in faults else "28700\n",
    }
    for name in ("online", "present", "possible"):
        files[f"sys/devices/system/cpu/{name}"] = f"0-{len(cores) - 1}\n"
    for number, cluster in enumerate(cores):
        for name, text in _cpufreq(cluster, faults).items():
            files[f"sys/devices/system/cpu/cpu{number}/cpufreq/{name}"] = f"{text}\n"
    return files


def _thermal_status(faults: Collection[Fault]) -> int:
    if Fault.HOT in faults:
        return 3
    return 2 if Fault.THROTTLED in faults else 0


def _cpufreq(cluster: Cluster, faults: Collection[Fault]) -> Mapping[str, str]:
    low, high = cluster.min_mhz * 1000, cluster.max_mhz * 1000
    cap = int(high * THROTTLED_SHARE) if Fault.THROTTLED in faults else high
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
        f"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {cluster.part}\n\n"
        for number, cluster in enumerate(cores)
    )


def _meminfo(profile: Profile) -> str:
    total_kib = profile.memory_mib * 1024
    facts = {"MemTotal": total_kib, "MemFree": total_kib // 8, "MemAvailable": total_kib // 2}
    return "".join(f"{name + ':':<16}{kib:>8} kB\n" for name, kib in facts.items())
