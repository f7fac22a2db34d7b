"""Sets of CPUs as text, and whether numbers of threads used cores of one kind."""

import re
from collections.abc import Iterable, Mapping

from fleetrank.foundation.wording import count_of

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_MAX_CPU = 65_536
"""Above any kernel's limit; a larger number is not part of a list of CPUs."""
_FACT = "cores_by_kind"
_BETWEEN_KINDS = " + "

Kinds = tuple[tuple[int, ...], ...]
"""CPUs of one kind in each group, such as big and small cores, or those of two sockets."""


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parses a set of CPUs in the kernel's form `0-3,8`; invalid parts are skipped."""
    cpus: set[int] = set()
    for part in text.strip().partition("\n")[0].split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            continue
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if last < _MAX_CPU:
            cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def cpu_list(cpus: Iterable[int]) -> str:
    """The set in the kernel's form: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def kinds_text(kinds: Kinds) -> str | None:
    """`4-7 + 0-3`; `None` without any group."""
    return _BETWEEN_KINDS.join(map(cpu_list, kinds)) or None


def cores_fact(kinds: Kinds) -> dict[str, str]:
    """The fact of a device with several kinds, for the column `device_facts`."""
    text = kinds_text(kinds)
    return {_FACT: text} if text and len(kinds) > 1 else {}


def kinds_in(facts: Mapping[str, object]) -> Kinds:
    """The kinds that `cores_fact` stored; empty without."""
    text = facts.get(_FACT)
    return tuple(map(parse_cpu_list, text.split(_BETWEEN_KINDS))) if isinstance(text, str) else ()


def unlike_cores(by_threads: Mapping[int, Iterable[int]], kinds: Kinds) -> str | None:
    """What to say of numbers of threads that used other kinds of cores; `None` if none did.

    Args:
        by_threads: the CPUs of each number of threads; empty where the system chooses.
        kinds: those of the device; empty if it reports none.
    """
    sets = {n: frozenset(cpus) for n, cpus in sorted(by_threads.items())}
    # The system may choose any core, and the device may have unlike ones.
    used = {(bool(cpus), *map(cpus.isdisjoint, kinds)) for cpus in sets.values()}
    if len(used) < 2:
        return None
    places = (f"{count_of(n, 'thread')} on {cpu_list(cpus) or 'any'}" for n, cpus in sets.items())
    return f"{', '.join(places)}: numbers of threads use unlike cores"
