"""The folder of a phone: its programs, properties and state, as files.

The scripts in `commands/` answer from `.phone/`, so a restarted daemon finds the phone
unchanged: one file per property, one per setting, one per service's dump.
"""

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from phone_farm.battery import Battery, battery_dump, power_files
from phone_farm.faults import Fault
from phone_farm.kernel import kernel_files, online_cores
from phone_farm.profile import Profile
from phone_farm.services import power_dump, thermal_dump

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
_KEPT = ("PYTHONPATH", "XDG_RUNTIME_DIR")
"""Variables of the daemon that a stand-in needs; a command on the phone sees only these."""
_PARENT = Path(__file__).parents[1]
"""On the path of a stand-in, it finds this package."""
BIN = "system/bin"


def install(root: Path, profile: Profile, properties: Mapping[str, str]) -> None:
    """Creates folders, programs and properties; files and settings of a user stay."""
    for name in ("data/local/tmp", "sdcard", "storage", BIN, ".phone/dumpsys"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for namespace in ("system", "secure", "global"):
        (root / ".phone/settings" / namespace).mkdir(parents=True, exist_ok=True)
    for name, value in properties.items():
        write(root, f"{PROPERTIES}/{name}", value)
    _link_programs(root / BIN)
    display = "DISPLAY MANAGER (dumpsys display)\n  mScreenState=ON"
    write(root, ".phone/dumpsys/display", display)
    write(root, ".phone/dumpsys/SurfaceFlinger", f"Build configuration: [sf]\nGLES: {profile.gles}")
    (root / ".phone/logcat").touch()


def environment(root: Path) -> dict[str, str]:
    """The complete environment of a command on the phone."""
    return {
        "PATH": str(root / BIN),
        "HOME": "/",
        "TMPDIR": str(root / "data/local/tmp"),
        "ANDROID_DATA": str(root / "data"),
        "ANDROID_ROOT": str(root / "system"),
        "LANG": "C",
        "USER": "shell",
        "FLEETRANK_PHONE": str(root),
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
    offset_s = CLOCK_JUMP_S if Fault.CLOCK_JUMP in faults else 0
    _write(root / ".phone/clock_offset_s", f"{offset_s}\n")


def _link_programs(folder: Path) -> None:
    for name in HOST_PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        if found is not None:
            link(folder / name, Path(found))
    for script in COMMANDS.iterdir():
        _write(folder / script.name, script.read_text(), mode=0o755)
    _write(folder / "fleetrank-python", _interpreter(), mode=0o755)


def link(path: Path, to: Path) -> None:
    if not path.is_symlink():
        path.symlink_to(to)


def _interpreter() -> str:
    """A script that runs the daemon's own Python, which finds this package and the host's locks."""
    kept = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PARENT), kept.get("PYTHONPATH"))))
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
