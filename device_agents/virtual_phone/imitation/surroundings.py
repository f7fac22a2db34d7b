"""The environment of a stand-in on its phone, and its output before a fault changes it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleetrank.device_agents.virtual_phone.handset.faults import Fault, take_fault

_CORE = "sys/devices/system/cpu/cpu0/cpufreq"


class Surroundings:
    """The phone's folder, read by a program that runs on it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def is_canned(self) -> bool:
        """Whether times are computed instead of measured."""
        return self._property("ro.fleetrank.virtual") == "canned"

    @property
    def seed(self) -> str:
        """The seed of the phone."""
        return self._property("ro.fleetrank.seed")

    @property
    def slowness(self) -> float:
        """Slowness of the phone now: if throttled, it is slower in proportion to its clock."""
        highest, allowed = (
            float((self._root / _CORE / name).read_text())
            for name in ("cpuinfo_max_freq", "scaling_max_freq")
        )
        return float(self._property("ro.fleetrank.slowness")) * highest / allowed

    @contextmanager
    def quiet_host(self) -> Iterator[None]:
        """Prevents other measurements on this host while a model really runs on it."""
        from fleetrank.foundation.lease import (
            host_lease,  # a canned run does not need it
        )

        with host_lease(f"virtual phone {self._property('ro.serialno')}"):
            yield

    def take_fault(self) -> Fault | None:
        """The fault that this run must show; it is removed now."""
        return take_fault(self._root)

    def shown(self, path: str) -> str:
        """A path as a user of the phone sees it."""
        return path.removeprefix(str(self._root))

    def log(self, tag: str, lines: Sequence[str]) -> None:
        """Appends to the phone's log, in the format `threadtime`, with the phone's clock."""
        offset_s = int((self._root / ".phone/clock_offset_s").read_text())
        now = datetime.now(UTC) + timedelta(seconds=offset_s)
        stamp = f"{now:%m-%d %H:%M:%S}.{now.microsecond // 1000:03d}"
        pid = os.getpid() % 100_000
        text = "".join(f"{stamp} {pid:5d} {pid:5d} I {tag}: {line}\n" for line in lines)
        with (self._root / ".phone/logcat").open("a") as file:
            file.write(text)

    def _property(self, name: str) -> str:
        return (self._root / ".phone/properties" / name).read_text().strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitatedOutput:
    """The complete output of one run of a program.

    Attributes:
        text: for standard output.
        other_version: the same run in the words of another version; it has no result file.
        log: lines for the phone's log, without stamp and tag.
        other_log: the same lines in the words of another version.
        result: content of the result file.
        appends: whether `result` is appended to the result file or replaces it.
    """

    text: str = ""
    other_version: str = ""
    log: tuple[str, ...] = ()
    other_log: tuple[str, ...] = ()
    result_path: str | None = None
    result: bytes | None = None
    appends: bool = False
    exit_code: int = 0
