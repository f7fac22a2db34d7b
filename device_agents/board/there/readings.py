"""Reads what a board says about itself, as text; `board_state` on the host parses it.

Only small files and three programs of the makers; nothing is changed and nothing needs root.
"""

import contextlib
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

Readings = dict[str, str]
"""Text by path below the root, or by the words of a command; what cannot be read is left out."""
ROOT = Path("/")
_MOST_BYTES = 65_536
_PROGRAM_LIMIT_S = 5.0
"""A firmware that does not answer must not hold a measurement."""
FACTS = (
    "proc/device-tree/model", "proc/device-tree/compatible",
    "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name",
    "etc/os-release", "proc/cpuinfo",
    "sys/devices/system/cpu/possible", "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpufreq/policy*/related_cpus",
    "sys/devices/system/cpu/cpufreq/policy*/cpuinfo_max_freq",
)  # fmt: skip
"""What stays the same between two starts of a board."""
STATE = (
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "sys/class/thermal/thermal_zone*/type",
    "sys/class/thermal/thermal_zone*/temp",
    "sys/class/hwmon/hwmon*/oc*_event_cnt",
)
"""What a measurement depends on."""
_IDENTITY = ("proc/device-tree/serial-number", "etc/machine-id")
"""A copied memory card has the same machine id on two boards, which then differ by serial."""
BOOT = "proc/sys/kernel/random/boot_id"
THROTTLED = ("vcgencmd", "get_throttled")
_PROGRAMS = (THROTTLED, ("vcgencmd", "measure_clock", "arm"), ("nvpmodel", "-q"))


def read_facts_text(root: Path = ROOT) -> Readings:
    """Everything about the board that seldom changes, and its clock in seconds since 1970."""
    return {**_texts(FACTS, root), "clock_s": str(int(time.time()))}  # noqa: TID251 - its clock


def read_identity(root: Path = ROOT) -> str | None:
    """A hash of the board's serial number and machine id; `None` if it has neither."""
    found = _texts(_IDENTITY, root)
    text = json.dumps(found, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16] if found else None


def read_boot(root: Path = ROOT) -> str | None:
    """The name of the boot, new at each start; `None` if the system has none."""
    return _texts((BOOT,), root).get(BOOT)


def read_state_text(root: Path = ROOT) -> Readings:
    """The state of the board now."""
    programs = {" ".join(words): text for words in _PROGRAMS if (text := run_program(words))}
    return {**_texts(STATE, root), **programs}


def run_program(words: Sequence[str]) -> str:
    """What a program prints; empty if it is missing, fails or hangs."""
    if shutil.which(words[0]) is None:
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            list(words), check=False, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_PROGRAM_LIMIT_S,
        )  # fmt: skip
        return _text(done.stdout) if done.returncode == 0 else ""
    return ""


def _texts(patterns: Sequence[str], root: Path) -> Readings:
    return {path: text for pattern in patterns for path, text in _matches(pattern, root)}


def _matches(pattern: str, root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.glob(pattern)):
        with contextlib.suppress(OSError), path.open("rb") as file:
            yield str(path.relative_to(root)), _text(file.read(_MOST_BYTES))


def _text(content: bytes) -> str:
    """Device trees end their texts with a zero byte, and separate them with it."""
    return content.decode("utf-8", errors="replace").replace("\0", "\n").strip()
