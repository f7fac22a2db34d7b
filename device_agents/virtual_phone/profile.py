"""Well-known phones as data, and the texts of their services and kernel files; pure.

The formats follow `BatteryService.java`, `ThermalManagerService.java` and
`PowerManagerService.java` of frameworks/base; written by hand, not recorded. Only the values that
fleetrank reads have a meaning here.
"""

import os
import posixpath
import random
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import tomllib

from fleetrank.device_agents.errors import PermanentError

# Faults of a phone, by name; each one can be injected into a virtual phone.


class Fault(StrEnum):
    """A fault and its duration.

    Faults with 'once' wait for the next occasion and end with it; the others last until the
    injection's `duration_s` is over, or until they are cleared.
    """

    UNAUTHORIZED = "unauthorized"
    """No key is accepted; open connections are cut so that the fault is visible."""
    OFFLINE = "offline"
    """CNXN gets no answer; open connections are cut."""
    DROP_PUSH = "drop_push"
    """Once: the connection is cut in the middle of the next file sent to the phone."""
    DROP_RUN = "drop_run"
    """Once: the connection is cut while the next runner is running."""
    HANG = "hang"
    """No request is answered any more; connections stay open."""
    REBOOT = "reboot"
    """The phone is away for `duration_s`, then back, at first without `sys.boot_completed`."""
    STORAGE_FULL = "storage_full"
    NO_EXIT_CODES = "no_exit_codes"
    """The phone no longer announces shell v2; open connections are cut so that it is visible."""
    CLOCK_JUMP = "clock_jump"
    """The phone's `date` is a day ahead."""
    RUNNER_CRASH = "runner_crash"
    """Once: a segmentation fault ends the next runner after half its output."""
    HALF_OUTPUT = "half_output"
    """Once: the next runner stops printing half-way, writes no result file and exits with 0."""
    GARBAGE_OUTPUT = "garbage_output"
    """Once: the next runner prints random bytes, in the result file too."""
    OTHER_VERSION = "other_version"
    """Once: the next runner prints the format of an old version and writes no result file."""
    SLOW_RUN = "slow_run"
    """Once: the next runner takes three seconds more, so that its clocks can be watched."""
    HOSTILE_NAMES = "hostile_names"
    """Listings over sync contain file names outside the requested folder."""
    THROTTLED = "throttled"
    """Clocks at 60 %, thermal status moderate."""
    HOT = "hot"
    """Battery at 46 degrees, skin at 52, thermal status severe."""
    SETTINGS_DENIED = "settings_denied"
    """`settings put` and `delete` are denied, as several makers do by default."""
    BATTERY_LOW = "battery_low"
    """Battery at 12 %, not charging."""
    UNPLUGGED = "unplugged"
    """No charger: the battery drains, and programs take the time that they print."""
    CORES_OFFLINE = "cores_offline"
    """Only the small cores are online: the others have no clock, and no program can be pinned to
    them alone."""
    HANGUP_ONLY = "hangup_only"
    """A closed connection sends SIGHUP to the command's shell alone, as adbd does; its program
    goes on."""
    WARM = "warm"
    """Battery at 39 degrees; thermal status none."""
    WARMS_UP = "warms_up"
    """After each run the phone is warm for `duration_s`; lasts until it is cleared."""
    LOW_CAPS_AT_REST = "low_caps_at_rest"
    """Clocks are limited to 60 % unless a runner runs, as on many Exynos and MediaTek phones."""
    FALLING_CAPS = "falling_caps"
    """Clocks are limited to 60 % while a runner runs; the thermal status stays none."""
    BATTERY_SAVER = "battery_saver"
    """Battery saver is on."""
    DOZES = "dozes"
    """The screen is off and the phone is in deep idle."""
    NAN_SENSOR = "nan_sensor"
    """The first temperature is `NaN`, as the Thermal HAL writes an unavailable one."""
    HAL_NOT_READY = "hal_not_ready"
    """The thermal service has no HAL: it writes status 0 and no current temperature."""
    SLOW_CONVOLUTION = "slow_convolution"
    """Convolutions of TFLite files take four times as long: the phone has no fast kernel."""
    SHARED_SERIAL = "shared_serial"
    """The serial number that every cheap tablet of one maker has."""


IN_RUN = frozenset({Fault.FALLING_CAPS})
AT_REST = frozenset({Fault.LOW_CAPS_AT_REST})
"""Faults that show only while a runner runs, and only while none does."""

CUTTING = frozenset({Fault.UNAUTHORIZED, Fault.OFFLINE, Fault.NO_EXIT_CODES, Fault.REBOOT})
"""Faults that are visible only when the client reconnects."""

ONCE = frozenset({Fault.DROP_PUSH, Fault.DROP_RUN})
"""The daemon ends these at the next occasion, however late it comes."""

RUNNER = frozenset(
    {
        Fault.RUNNER_CRASH,
        Fault.HALF_OUTPUT,
        Fault.GARBAGE_OUTPUT,
        Fault.OTHER_VERSION,
        Fault.SLOW_RUN,
    }
)
"""The next stand-in of a runner finds these in the phone's folder and ends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault of a fault run; `phone` counts from 0."""

    after_s: float
    phone: int
    fault: Fault
    duration_s: float


def draw_injections(
    rng: random.Random, *, phones: int, count: int, span_s: float, faults: Sequence[Fault]
) -> tuple[Injection, ...]:
    """Draws `count` injections over `span_s`, in order of time; every given fault occurs.

    `count` below the number of `faults` is raised to it.
    """
    kinds = [*faults, *rng.choices(faults, k=max(0, count - len(faults)))]
    drawn = [
        Injection(
            after_s=rng.uniform(0.0, span_s),
            phone=rng.randrange(phones),
            fault=fault,
            duration_s=rng.uniform(0.5, 3.0),
        )
        for fault in kinds
    ]
    return tuple(sorted(drawn, key=lambda injection: injection.after_s))


_FOLDER = ".phone/runner_faults"


def leave_fault(root: Path, fault: Fault) -> None:
    """Leaves a fault for the next runner."""
    folder = root / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / fault.value).touch()


def remove_fault(root: Path, fault: Fault) -> None:
    """Removes a fault that no runner has met."""
    (root / _FOLDER / fault.value).unlink(missing_ok=True)


def take_fault(root: Path) -> Fault | None:
    """Returns the fault that the runner must show and removes it; `None` without a fault.

    Removing the file decides between two programs, so each fault happens once.
    """
    for fault in sorted(RUNNER):
        try:
            (root / _FOLDER / fault.value).unlink()
        except FileNotFoundError:
            continue
        return fault
    return None


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
    """Reads all profiles that ship with fleetrank, by name."""
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


THROTTLED_SHARE = 0.6
"""Share of the highest clock, under the faults that limit it."""
_CAPPING = frozenset({Fault.THROTTLED, Fault.LOW_CAPS_AT_REST, Fault.FALLING_CAPS})


TEXTS = Path(__file__).with_name("texts")
"""What services and programs print, with `{names}` for what changes."""


def thermal_dump(faults: Collection[Fault]) -> str:
    """`dumpsys thermalservice`; the cached section is old on purpose, as on many phones."""
    if Fault.HAL_NOT_READY in faults:
        return "IsStatusOverride: false\nThermal Status: 0\nHAL Ready: false\n"
    is_hot = Fault.HOT in faults
    status = 3 if is_hot else 2 if Fault.THROTTLED in faults else 0
    nan = "\tTemperature{mValue=NaN, mType=3, mName=disp_therm, mStatus=0}\n"
    cpu_c = 88.4 if is_hot else 41.2
    return (
        (TEXTS / "thermalservice")
        .read_text()
        .format(
            status=status,
            cooling=2 if status else 0,
            nan=nan if Fault.NAN_SENSOR in faults else "",
            cpu_c=cpu_c,
            gpu_c=round(cpu_c - 2.5, 1),
            battery_c=_battery_c(faults),
            skin_c=52.0 if is_hot else 31.7,
        )
    )


def _battery_c(faults: Collection[Fault]) -> float:
    return 46.2 if Fault.HOT in faults else 39.0 if Fault.WARM in faults else 28.7


def power_dump(faults: Collection[Fault] = ()) -> str:
    """`dumpsys power`, in the form of Android 9 and later."""
    dozes = Fault.DOZES in faults
    return (
        (TEXTS / "power")
        .read_text()
        .format(
            wakefulness="Dozing" if dozes else "Awake",
            dozes=_word(dozes),
            saves=_word(Fault.BATTERY_SAVER in faults),
        )
    )


def _word(is_so: bool) -> str:
    return "true" if is_so else "false"


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


# The battery of a virtual phone: what leaves it, and how makers report it.
#
# The dump follows `BatteryService.java` of frameworks/base; the lines in lower case are
# Samsung's. The rails follow the `energy_value` of a Pixel 6.

IDLE_MW, BUSY_MW = 900.0, 3000.0
"""Power of the whole phone with its screen on, at rest and while a program computes."""
_RAILS_SHARE = 0.6
"""Share of the power that flows through the rails of processors and memory."""
VOLTAGE_MV = 4000
_FULL_UAH = 2_712_000
_MJ_PER_UAH = 3.6 * VOLTAGE_MV / 1000
_WOBBLES = (0, 7, -5, 3, -8, 5, -2)
"""Deviations of the current from one reading to the next, in per mille."""
_SUPPLY = "sys/class/power_supply/battery"
_RAILS = "sys/bus/iio/devices/iio:device0/energy_value"


@dataclass(slots=True)
class Battery:
    """Counts the energy that the phone has used since its start."""

    used_mj: float = 0.0
    power_mw: float = IDLE_MW
    since_s: float = 0.0
    readings: int = 0

    def advance(self, now_s: float, *, is_running: bool) -> None:
        """Counts until now, and goes on with the power of what the phone does from now on."""
        self.used_mj += self.power_mw * (now_s - self.since_s)
        self.since_s = now_s
        self.power_mw = BUSY_MW if is_running else IDLE_MW

    @property
    def charge_uah(self) -> float:
        """The charge that is left."""
        return _FULL_UAH - self.used_mj / _MJ_PER_UAH

    def current_ua(self) -> float:
        """The size of the current; each reading differs a little, as those of real gauges."""
        self.readings += 1
        wobble = 1 + _WOBBLES[self.readings % len(_WOBBLES)] / 1000
        return self.power_mw / VOLTAGE_MV * 1_000_000 * wobble


def battery_dump(
    faults: Collection[Fault], battery: Battery | None = None, gauge: Gauge | None = None
) -> str:
    """`dumpsys battery`; a phone on its charger reports a charge that does not move."""
    is_low = Fault.BATTERY_LOW in faults
    is_free = is_low or Fault.UNPLUGGED in faults
    charge, more = _FULL_UAH, ""
    if battery is not None and gauge is not None:
        charge = _charge(battery, gauge)
        if gauge.current_unit_ua and not gauge.has_files:
            more = f"  current now: {_current(battery, gauge)}\n  charge counter: 0\n"
    text = (
        (TEXTS / "battery")
        .read_text()
        .format(
            powered=_word(not is_free),
            charge=charge,
            status=3 if is_free else 2,
            level=12 if is_low else 84,
            voltage=4190 if battery is None else VOLTAGE_MV,
            tenths_c=round(10 * _battery_c(faults)),
        )
    )
    return text + more


def power_files(battery: Battery, gauge: Gauge) -> Mapping[str, str]:
    """The kernel's files that the shell of this phone may read, by path without first slash."""
    files = {}
    if gauge.has_files:
        files = {
            f"{_SUPPLY}/status": "Discharging",
            f"{_SUPPLY}/charge_counter": str(_charge(battery, gauge)),
            f"{_SUPPLY}/voltage_now": str(VOLTAGE_MV * 1000),
        }
        if gauge.current_unit_ua:
            files[f"{_SUPPLY}/current_now"] = str(_current(battery, gauge))
    if gauge.has_rails:
        files[_RAILS] = _rails(battery)
    return {path: f"{text}\n" for path, text in files.items()}


def _charge(battery: Battery, gauge: Gauge) -> int:
    steps = int(battery.charge_uah // gauge.charge_step_uah)
    return steps * gauge.charge_step_uah // gauge.charge_unit_uah


def _current(battery: Battery, gauge: Gauge) -> int:
    return gauge.current_sign * round(battery.current_ua() / gauge.current_unit_ua)


def _rails(battery: Battery) -> str:
    """Two rails of the processors, and one of the radio, which is not of the computation."""
    stamp = int(battery.since_s * 1000)
    compute_uj = battery.used_mj * _RAILS_SHARE * 1000
    rails = {
        "VSYS_PWR_MODEM": battery.used_mj * 100,
        "S2M_VDD_CPUCL2": compute_uj * 0.75,
        "S1M_VDD_MIF": compute_uj * 0.25,
    }
    lines = (f"CH{n}(T={stamp})[{r}], {int(e)}" for n, (r, e) in enumerate(rails.items()))
    return "\n".join((f"t={stamp}", *lines))


# The folder of a virtual phone: its paths, files, programs and state; short file I/O.
#
# The scripts in `commands/` answer from `.phone/`, so a restarted daemon finds the phone
# unchanged: one file per property, one per setting, one per service's dump.
#
# A phone's `/data`, `/sys`, `/proc`, `/sdcard` and `/storage` are folders inside the phone's
# folder. They are replaced in the text of a command before the host's shell reads it, and removed
# from its output. That needs no privileges, no namespace and no image. Its limits: paths that a
# program builds itself, or reads from a file, are those of the host. Everything outside these
# folders is the host's, too. The phone is not a sandbox: everyone who may use its port may run
# commands as the user who started it.

_PHONE_PATH = re.compile(r"(?<![\w./})-])/(?=(?:data|sys|proc|sdcard|storage)(?![\w.-]))", re.ASCII)
"""The slash before one of the folders, unless the text before it makes a longer path."""
_SAFE_ROOT = re.compile(r"/[\w./+-]+", re.ASCII)
"""The root appears in shell text, inside and outside quotes; these characters are never special."""


class PhonePaths:
    """Translates between the phone's paths and the host's."""

    def __init__(self, root: Path) -> None:
        """Raises `PermanentError` for a folder whose name a shell could interpret as code."""
        self.root = root.resolve()
        if _SAFE_ROOT.fullmatch(str(self.root)) is None:
            raise PermanentError(
                f"the folder '{self.root}' cannot hold virtual phones",
                "choose one whose path has only letters, digits and . _ + -",
            )

    def to_host(self, command: str) -> str:
        """Replaces the phone's paths in the text of a command."""
        return _PHONE_PATH.sub(lambda _: f"{self.root}/", command)

    def file(self, path: str) -> Path | None:
        """The place of a path of the phone, after following all links; `None` if it is outside.

        A file transfer never leaves the phone's folder, although a command can. A path that the
        host cannot look up, for example because a name is too long, also gives `None`.
        """
        try:
            return self._file(path)
        except OSError:
            return None

    def _file(self, path: str) -> Path | None:
        joined = posixpath.normpath(posixpath.join("/", path)).lstrip("/")
        if "\0" in path:
            return None
        inside = self.root / joined
        parent = inside.parent.resolve()
        if inside.is_symlink() and not inside.resolve().is_relative_to(self.root):
            return None
        return parent / inside.name if parent.is_relative_to(self.root) else None


class PathHider:
    """Removes the phone's folder from a stream of output in pieces of any size."""

    def __init__(self, root: Path) -> None:
        self._sign = str(root).encode()
        self._held = b""

    def hide(self, chunk: bytes) -> bytes:
        """Returns text that can be sent; an end that may be the start of the path is kept back."""
        text = self._held + chunk
        sizes = range(min(len(self._sign), len(text)), 0, -1)
        keep = next((size for size in sizes if text.endswith(self._sign[:size])), 0)
        self._held = text[len(text) - keep :]
        return self._hidden(text[: len(text) - keep])

    def rest(self) -> bytes:
        """Returns the text that was kept back, at the end of the stream."""
        held, self._held = self._held, b""
        return b"/" if held == self._sign else held

    def _hidden(self, text: bytes) -> bytes:
        """Without the folder; alone on a line it is the phone's root: `pwd` there prints `/`."""
        return text.replace(self._sign + b"\n", b"/\n").replace(self._sign, b"")


COMMANDS = Path(__file__).parent / "commands"
HOST_PROGRAMS = (
    "basename", "cat", "chmod", "cmp", "cp", "cut", "dd", "dirname", "du", "echo", "env", "expr",
    "false", "find", "grep", "head", "kill", "ln", "ls", "md5sum", "mkdir", "mktemp", "mv", "nohup",
    "od", "printf", "pwd", "readlink", "realpath", "rm", "rmdir", "sed", "seq", "setsid", "sh",
    "sha1sum", "sha256sum", "sleep", "sort", "stat", "sync", "tail", "tar", "tee", "test",
    "timeout", "touch", "tr", "true", "uniq", "wc", "xargs",
)  # fmt: skip
"""Tools that toybox has on a phone, from the host; without `awk`, since few phones have it."""
CLOCK_JUMP_S = 86_400
SLOW_CONVOLUTION = "CONV_2D 4\n"
_KEPT = ("PYTHONPATH", "XDG_RUNTIME_DIR")
"""Variables of the daemon that a stand-in needs; a command on the phone sees only these."""
_BIN = "system/bin"


def install(root: Path, profile: Profile, properties: Mapping[str, str]) -> None:
    """Creates folders, programs and properties; files and settings of a user stay."""
    for name in ("data/local/tmp", "sdcard", "storage", _BIN, ".phone/dumpsys"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for namespace in ("system", "secure", "global"):
        (root / ".phone/settings" / namespace).mkdir(parents=True, exist_ok=True)
    for name, value in properties.items():
        write(root, f"{PROPERTIES}/{name}", value)
    _link_programs(root / _BIN)
    display = "DISPLAY MANAGER (dumpsys display)\n  mScreenState=ON"
    write(root, ".phone/dumpsys/display", display)
    write(root, ".phone/dumpsys/SurfaceFlinger", f"Build configuration: [sf]\nGLES: {profile.gles}")
    (root / ".phone/logcat").touch()


def environment(root: Path) -> dict[str, str]:
    """The complete environment of a command on the phone."""
    return {
        "PATH": str(root / _BIN),
        "HOME": "/",
        "TMPDIR": str(root / "data/local/tmp"),
        "ANDROID_DATA": str(root / "data"),
        "ANDROID_ROOT": str(root / "system"),
        "LANG": "C",
        "USER": "shell",
        "FLEETRANK_PHONE": str(root),
    }


ROOT_VARIABLE = "FLEETRANK_ANDROID_ROOT"
_EMULATORS = ("qemu-aarch64", "qemu-arm")
_HOOK = "elf_exec.so"


def android_root() -> Path:
    """The folder with Android's C library, which `make android-root` builds.

    Raises:
        PermanentError: none is named, something in it is missing, or qemu-user is not installed.
    """
    named = os.environ.get(ROOT_VARIABLE)
    if not named:
        raise PermanentError(
            f"{ROOT_VARIABLE} does not name a folder with Android's C library",
            f"`make android-root` builds one; then `export {ROOT_VARIABLE}=build/android_root`",
        )
    root = Path(named).resolve()
    missing = [name for name in ("system/bin/linker64", _HOOK) if not (root / name).is_file()]
    missing += [name for name in _EMULATORS if shutil.which(name) is None]
    if missing:
        raise PermanentError(
            f"emulated phones with {root} lack {', '.join(missing)}",
            "build the folder again: `make android-root`; Debian, Ubuntu: apt install qemu-user",
        )
    return root


def emulate(root: Path, android: Path) -> dict[str, str]:
    """Links Android's files and the emulators into the phone's folder.

    Returns:
        What the environment of its commands needs besides: a program of ARM that is started runs
        under qemu, which looks up absolute paths in the phone's folder first.
    """
    for folder in ("bin", "lib", "lib64", "usr"):
        (root / "system" / folder).mkdir(parents=True, exist_ok=True)
        for file in (android / "system" / folder).iterdir():
            _link(root / "system" / folder / file.name, file)
    for name in _EMULATORS:
        _link(root / _BIN / name, Path(str(shutil.which(name))))
    cpu = os.environ.get("QEMU_CPU")
    return {
        "LD_PRELOAD": str(android / _HOOK),
        "QEMU_LD_PREFIX": str(root),
        "QEMU_UNSET_ENV": "LD_PRELOAD",
        **({"QEMU_CPU": cpu} if cpu else {}),
    }


PROPERTIES = ".phone/properties"
"""The folder of the answers of `getprop`."""


def write(root: Path, path: str, text: str) -> None:
    """Sets the one or more lines of a file of the phone."""
    _write(root / path, f"{text}\n")


def write_power(root: Path, profile: Profile, faults: Collection[Fault], battery: Battery) -> None:
    """Sets what an unplugged phone says about its battery now."""
    text = battery_dump(faults, battery, profile.gauge)
    for name in ("battery", "battery.real"):
        _write(root / ".phone/dumpsys" / name, text)
    for path, content in power_files(battery, profile.gauge).items():
        _write(root / path, content)


def write_conditions(
    root: Path, profile: Profile, faults: Collection[Fault], *, is_running: bool
) -> None:
    """Sets everything that a fault, or a program that runs, changes in the phone's state."""
    services = {"power": power_dump(faults)}
    _write(root / ".phone/real_time", "1\n" if Fault.UNPLUGGED in faults else "")
    if Fault.UNPLUGGED not in faults:
        services["battery"] = battery_dump(faults)
        shutil.rmtree(root / "sys/class/power_supply", ignore_errors=True)
        shutil.rmtree(root / "sys/bus/iio", ignore_errors=True)
    if profile.has_thermalservice:
        services["thermalservice"] = thermal_dump(faults)
    for name, text in services.items():
        _write(root / ".phone/dumpsys" / name, text)
        _write(root / ".phone/dumpsys" / f"{name}.real", text)  # `reset` restores this text
    for path, text in kernel_files(profile, faults, is_running=is_running).items():
        _write(root / path, text)
    online = online_cores(profile, faults)
    _write(root / ".phone/cores", f"{online}\n")
    for core in range(online, sum(cluster.cores for cluster in profile.clusters)):
        shutil.rmtree(root / f"sys/devices/system/cpu/cpu{core}/cpufreq", ignore_errors=True)
        (root / f"sys/devices/system/cpu/cpu{core}").mkdir(parents=True, exist_ok=True)
    free_kib = 0 if Fault.STORAGE_FULL in faults else profile.free_mib * 1024
    _write(root / ".phone/free_kib", f"{free_kib}\n")
    _write(root / ".phone/settings_denied", "1\n" if Fault.SETTINGS_DENIED in faults else "")
    slow = SLOW_CONVOLUTION if Fault.SLOW_CONVOLUTION in faults else ""
    _write(root / ".phone/slow_operators", slow)
    offset_s = CLOCK_JUMP_S if Fault.CLOCK_JUMP in faults else 0
    _write(root / ".phone/clock_offset_s", f"{offset_s}\n")


def _link_programs(folder: Path) -> None:
    for name in HOST_PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        if found is not None:
            _link(folder / name, Path(found))
    for script in COMMANDS.iterdir():
        _write(folder / script.name, script.read_text(), mode=0o755)
    _write(folder / "fleetrank-python", _interpreter(), mode=0o755)


def _link(path: Path, to: Path) -> None:
    if not path.is_symlink():
        path.symlink_to(to)


def _interpreter() -> str:
    """A script that runs the daemon's own Python, which finds our packages and the host's locks."""
    kept = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    words = [*(f"{name}={shlex.quote(value)}" for name, value in kept.items()), "exec"]
    return f'#!/bin/sh\n{" ".join(words)} {shlex.quote(sys.executable)} -P "$@"\n'


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replaces a whole file, because a command may be reading it. An equal file is not written."""
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    aside.write_text(text)
    aside.chmod(mode)
    aside.replace(path)
