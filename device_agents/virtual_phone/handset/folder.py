"""The folder of a virtual phone: its files, programs and state; short file I/O.

The scripts in `commands/` answer from `.phone/`, so a restarted daemon finds the phone unchanged:
one file per property, one per setting, one per service's dump.
"""

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from fleetrank.device_agents.virtual_phone.handset import dumps
from fleetrank.device_agents.virtual_phone.handset.faults import Fault
from fleetrank.device_agents.virtual_phone.handset.profile import Profile

COMMANDS = Path(__file__).parents[1] / "commands"
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
_BIN = "system/bin"


def install(root: Path, profile: Profile, properties: Mapping[str, str]) -> None:
    """Creates folders, programs and properties; files and settings of a user stay."""
    for name in ("data/local/tmp", "sdcard", "storage", _BIN, ".phone/dumpsys"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for namespace in ("system", "secure", "global"):
        (root / ".phone/settings" / namespace).mkdir(parents=True, exist_ok=True)
    for name, value in properties.items():
        write_property(root, name, value)
    _link_programs(root / _BIN)
    cores = sum(cluster.cores for cluster in profile.clusters)
    _write(root / ".phone/cores", f"{cores}\n")
    _write(root / ".phone/dumpsys/power", dumps.power())
    _write(root / ".phone/dumpsys/display", dumps.display())
    _write(root / ".phone/dumpsys/SurfaceFlinger", dumps.surface_flinger(profile))
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


def write_property(root: Path, name: str, value: str) -> None:
    """Sets the answer of `getprop`."""
    _write(root / ".phone/properties" / name, f"{value}\n")


def write_boot_id(root: Path, boot_id: str) -> None:
    """Sets the kernel's id of this boot."""
    _write(root / "proc/sys/kernel/random/boot_id", f"{boot_id}\n")


def write_uptime(root: Path, uptime_s: float) -> None:
    """Sets the content of /proc/uptime."""
    _write(root / "proc/uptime", f"{uptime_s:.2f} {uptime_s:.2f}\n")


def write_conditions(root: Path, profile: Profile, faults: Collection[Fault]) -> None:
    """Sets everything that a fault changes in the phone's state."""
    services = {"battery": dumps.battery(faults)}
    if profile.has_thermalservice:
        services["thermalservice"] = dumps.thermal(faults)
    for name, text in services.items():
        _write(root / ".phone/dumpsys" / name, text)
        _write(root / ".phone/dumpsys" / f"{name}.real", text)  # `reset` restores this text
    for path, text in dumps.kernel_files(profile, faults).items():
        _write(root / path, text)
    free_kib = 0 if Fault.STORAGE_FULL in faults else profile.free_mib * 1024
    _write(root / ".phone/free_kib", f"{free_kib}\n")
    offset_s = CLOCK_JUMP_S if Fault.CLOCK_JUMP in faults else 0
    _write(root / ".phone/clock_offset_s", f"{offset_s}\n")


def forget_at_restart(root: Path) -> None:
    """Deletes what a phone loses when it restarts: its log. Settings are kept."""
    _write(root / ".phone/logcat", "")


def _link_programs(folder: Path) -> None:
    for name in HOST_PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        if found is not None and not (folder / name).is_symlink():
            (folder / name).symlink_to(found)
    for script in COMMANDS.iterdir():
        _write(folder / script.name, script.read_text(), mode=0o755)
    _write(folder / "fleetrank-python", _interpreter(), mode=0o755)


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
