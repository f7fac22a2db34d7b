"""Energy of this host's processors from the kernel's RAPL counters."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fleetrank.device_agents.host.conditions import parse_number
from fleetrank.device_agents.host.energy import CounterSource, EnergyReading
from fleetrank.foundation.vocabulary import EnergyMethod

_PACKAGES = "sys/class/powercap"
_UJ_PER_MJ = 1000


class RaplSource:
    """All processor packages together; it fulfils `EnergySource`."""

    method = EnergyMethod.RAPL_COUNTER

    def __init__(self, packages: tuple[CounterSource, ...]) -> None:
        self._packages = packages

    def read(self) -> EnergyReading | None:
        """Reads all counters; if one part is missing, the sum is missing."""
        readings = [package.read() for package in self._packages]
        known = [reading for reading in readings if reading is not None]
        if not known or len(known) < len(readings):
            return None
        return EnergyReading(
            mj=sum(reading.mj for reading in known),
            # The packages' counters change together; the slowest gives the number of steps.
            updates=min(reading.updates for reading in known),
        )


def open_rapl(root: Path = Path("/")) -> RaplSource | None:
    """The counters of this host; `None` if they do not exist or this user may not read them.

    Since Linux 5.10 only root may read them: the counters once leaked secrets (CVE-2020-8694).

    Source: Linux, Documentation/power/powercap: `energy_uj` counts microjoules and wraps around at
        `max_energy_range_uj`; `intel-rapl:N` is a package, also on AMD; its parts have a second
            number and are included in it.
    """
    folders = sorted((root / _PACKAGES).glob("intel-rapl:[0-9]*"))
    packages = [folder for folder in folders if folder.name.count(":") == 1]
    sources = tuple(_source(folder) for folder in packages if _is_package(folder))
    rapl = RaplSource(sources)
    return rapl if sources and rapl.read() is not None else None


def _is_package(folder: Path) -> bool:
    try:
        # `psys` is the whole board, packages included.
        return (folder / "name").read_text(encoding="ascii").startswith("package")
    except (OSError, UnicodeDecodeError):
        return False


def _source(folder: Path) -> CounterSource:
    read: Callable[[], float | None] = partial(_read_mj, folder / "energy_uj")
    return CounterSource(
        EnergyMethod.RAPL_COUNTER, read, range_mj=_read_mj(folder / "max_energy_range_uj")
    )


def _read_mj(file: Path) -> float | None:
    try:
        microjoules = parse_number(file.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return None
    return None if microjoules is None else microjoules / _UJ_PER_MJ
