"""The folder of a virtual phone: its paths, files, programs and state; short file I/O.

The scripts in `commands/` answer from `.phone/`, so a restarted daemon finds the phone unchanged:
one file per property, one per setting, one per service's dump.

A phone's `/data`, `/sys`, `/proc`, `/sdcard` and `/storage` are folders inside the phone's folder.
They are replaced in the text of a command before the host's shell reads it, and removed from its
output. That needs no privileges, no namespace and no image. Its limits: paths that a program
builds itself, or reads from a file, are those of the host. Everything outside these folders is the
host's, too. The phone is not a sandbox: everyone who may use its port may run commands as the user
who started it.
"""

import os
import posixpath
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.virtual_phone.handset.battery import (
    Battery,
    battery_dump,
    power_files,
)
from fleetrank.device_agents.virtual_phone.handset.faults import Fault
from fleetrank.device_agents.virtual_phone.handset.profile import (
    Profile,
    display_dump,
    kernel_files,
    online_cores,
    power_dump,
    surface_flinger_dump,
    thermal_dump,
)

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
        write_property(root, name, value)
    _link_programs(root / _BIN)
    _write(root / ".phone/dumpsys/display", display_dump())
    _write(root / ".phone/dumpsys/SurfaceFlinger", surface_flinger_dump(profile))
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


def write_setting(root: Path, name: str, value: str) -> None:
    """Sets the answer of `settings get`; `name` is `namespace/key`."""
    _write(root / ".phone/settings" / name, f"{value}\n")


def write_boot_id(root: Path, boot_id: str) -> None:
    """Sets the kernel's id of this boot."""
    _write(root / "proc/sys/kernel/random/boot_id", f"{boot_id}\n")


def write_uptime(root: Path, uptime_s: float) -> None:
    """Sets the content of /proc/uptime."""
    _write(root / "proc/uptime", f"{uptime_s:.2f} {uptime_s:.2f}\n")


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
