"""The files under /sys and /proc of a phone: cores, clocks, memory, thermal zones."""

from collections.abc import Collection, Mapping

from phone_farm.faults import Fault
from phone_farm.profile import Cluster, Profile

THROTTLED_SHARE = 0.6
"""Share of the highest clock, on a phone that is throttled."""


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


def _cpufreq(cluster: Cluster, faults: Collection[Fault], *, is_running: bool) -> dict[str, str]:
    low, high = cluster.min_mhz * 1000, cluster.max_mhz * 1000
    allowed = high if is_running else (cluster.rest_cap_mhz or cluster.max_mhz) * 1000
    cap = int(high * THROTTLED_SHARE) if Fault.THROTTLED in faults else allowed
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
