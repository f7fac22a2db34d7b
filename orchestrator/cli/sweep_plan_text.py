"""What `fleetrank sweep plan` prints."""

import itertools
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from fleetrank.analysis.labels import keys_in, labels_of
from fleetrank.foundation.cpus import cpu_list, unlike_cores
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.wording import count_of, duration, with_flags
from fleetrank.foundation.workload import IMAGE
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import ExportRequest
from fleetrank.models.errors import ModelError
from fleetrank.models.networks.primer import canary_request, primer_request
from fleetrank.orchestrator.cli.listing import print_table
from fleetrank.orchestrator.identity import Cell, SkippedCell, company, loaded_bytes
from fleetrank.orchestrator.plan import estimate
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_session import profiles_of, sets_of
from fleetrank.orchestrator.sweep.sweep_setup import Setup, idle_cores, kinds_of, primed_formats
from fleetrank.orchestrator.workspace.workspace import Workspace

_SHOWN_BYTES = 10**9
"""Smaller sums are not worth a person's attention; the JSON form always has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """The estimated time; `None` without cells to measure.

    Attributes:
        starting_s: to start and end a Ray of this host; 0 for a cluster, and without Ray.
    """

    starting_s: float
    exporting_s: float
    idle_cores: int
    measuring_s: float | None
    n_from_history: int
    n_from_sizes: int
    n_simulated: int


def print_plan(
    workspace: Workspace, setup: Setup, *, as_json: bool, starts_ray: bool = False
) -> None:
    """Prints cells, skipped cells, totals and time: as text, or as one JSON object.

    Args:
        workspace: its cache says which files are ready, its results how long repeats took.
        setup: the plan.
        as_json: one JSON object.
        starts_ray: the sweep would start a Ray of this host.
    """
    plan = setup.plan
    unopened = setup.costs_without_file(plan.cells)
    requests = {cell.export: None for cell in plan.cells if cell.export not in unopened}
    cached = _cached(workspace, requests)
    rows: list[dict[str, object]] = [
        {
            "model": cell.export.card.name,
            "family": cell.export.card.family.value,
            "workload": str(cell.execution.workload),
            "platform": cell.platform_key,
            "cpus": cpu_list(cell.execution.affinity or ()) or None,
            "origin": setup.places[cell.device].origin.value,
            "repeats": plan.least_repeats,
            "file": _file_state(cell.export, cached, unopened),
        }
        for cell in plan.cells
    ]
    missing = _missing(workspace, setup, requests, cached)
    history = ResultStore(workspace.results).history()
    times = _times(setup, missing, history, starts_ray=starts_ray)
    new_bytes = estimate.disk_bytes(missing)
    n_to_build = len(requests) - len(cached)
    if as_json:
        content = {
            "cells": rows,
            "skipped": [{"cell": one.label, "reason": one.reason} for one in plan.skipped],
            "totals": {
                "cells": len(plan.cells),
                "repeats": plan.least_repeats,
                "processes": plan.n_repeats,
                "skipped": len(plan.skipped),
                "files_ready": len(cached),
                "files_to_build": n_to_build,
                "disk_bytes": new_bytes,
            },
            "time": asdict(times),
        }
        print(json_text(content, indent=2))
        return
    by_device = _cpus_by_threads(plan.cells).values()
    hidden = {
        *(["workload"] if {row["workload"] for row in rows} <= {str(IMAGE)} else []),
        *([] if any(len({*one.values()}) > 1 for one in by_device) else ["cpus"]),
    }
    rows = [{name: row[name] for name in row if name not in hidden} for row in rows]
    print_table(rows, as_json=False)
    labels = labels_of(keys_in(cell.label for cell in plan.skipped))
    for line in _skipped_lines(plan.skipped):
        print(labels.said(line))
    cells, repeats = count_of(len(plan.cells), "cell"), count_of(plan.least_repeats, "repeat")
    print(f"\n{cells} x {repeats} = {count_of(plan.n_repeats, 'process', 'processes')}")
    size = f", about {new_bytes / 1e6:,.0f} MB on disk" if new_bytes >= _SHOWN_BYTES else ""
    print(f"files: {len(cached)} ready, {n_to_build} to build and verify{size}")
    parts = _until_lines, _round_lines, _unlike_cores, _profile_lines, _set_lines
    for line in itertools.chain.from_iterable(part(setup) for part in parts):
        print(line)
    _print_times(times)


def _cpus_by_threads(cells: Iterable[Cell]) -> dict[str, dict[int, tuple[int, ...]]]:
    found: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
    for cell in cells:
        found[cell.device][cell.execution.threads] = cell.execution.affinity or ()
    return found


def _unlike_cores(setup: Setup) -> Iterator[str]:
    """Devices whose numbers of threads use other kinds of cores: their scaling compares these."""
    for device, of in _cpus_by_threads(setup.plan.cells).items():
        if said := unlike_cores(of, kinds_of(setup.devices[device], setup.fleet)):
            yield f"{device}: {said}"


def _profile_lines(setup: Setup) -> Iterator[str]:
    """How many cells are profiled after the latencies, and why others are not."""
    if not setup.spec.profile:
        return
    profiled = profiles_of(setup, setup.plan)
    n = count_of(profiled.n_repeats, "process", "processes")
    yield f"profiles: {count_of(len(profiled.cells), 'cell')}, {n} more; not in the time below"
    yield from _skipped_lines(profiled.skipped)


def _set_lines(setup: Setup) -> Iterator[str]:
    """How many sets run after the latencies, and why others do not."""
    asked = setup.spec.replicas
    if asked is None:
        return
    plan = sets_of(setup, setup.plan)
    numbers = ", ".join(map(str, asked.processes))
    least_s = plan.n_repeats * asked.run_s
    yield (
        f"replicas: {count_of(plan.n_repeats, 'set')} of {numbers} processes, at least "
        f"{duration(least_s)} and their loading; not in the time below"
    )
    yield from _skipped_lines(plan.skipped)


def _file_state(
    request: ExportRequest, cached: Container[ExportRequest], unopened: Container[ExportRequest]
) -> str:
    """Of one cell; a simulated device needs the cost of a model and no file."""
    if request in unopened:
        return "not needed"
    return "ready" if request in cached else "to build"


def _until_lines(setup: Setup) -> Iterator[str]:
    """What is decided after the first repeats, and when that ends."""
    rule = setup.plan.until
    if rule is not None:
        yield (
            f"until decided ({rule.question}, within {100 * rule.margin:g} %): then further "
            f"repeats of models with an open decision, at most {rule.most} of each, none after "
            f"{duration(rule.budget_s)}; not in the time below"
        )


def _round_lines(setup: Setup) -> Iterator[str]:
    """Where cells take turns, how many, and the memory that the largest of them need together."""
    rules = setup.plan.rounds
    if rules is None:
        return
    sizes: dict[tuple[str, object], list[int]] = defaultdict(list)
    for cell in setup.plan.cells:
        if setup.places[cell.device].takes_turns:
            size = loaded_bytes(estimate.copy_bytes(cell.export))
            sizes[cell.device, company(cell, rules)].append(size)
    meeting = {key: sorted(some)[-rules.cells :] for key, some in sizes.items() if len(some) > 1}
    if meeting:
        used = min(max(map(sum, meeting.values())), rules.memory_bytes)
        devices = ", ".join(dict.fromkeys(device for device, _ in meeting))
        yield (
            f"rounds: up to {rules.cells} cells take turns on {devices}, loaded together in about "
            f"{used / 2**30:.1f} GiB, at most {rules.memory_bytes / 2**30:.1f}; `rounds: off` "
            "loads one at a time"
        )


def _missing(
    workspace: Workspace,
    setup: Setup,
    requests: Mapping[ExportRequest, None],
    cached: set[ExportRequest],
) -> list[ExportRequest]:
    """The files to build: those of the cells, then primers and the canary."""
    more = {primer_request(format_) for format_ in primed_formats(setup, setup.plan.cells)}
    if setup.has_canaries:
        more.add(canary_request())
    more -= requests.keys()
    missing = [request for request in requests if request not in cached]
    return [*missing, *(more - _cached(workspace, more))]


def _skipped_lines(skipped: Iterable[SkippedCell]) -> Iterator[str]:
    """One line for all models and workloads that a platform skips for the same reason."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for cell in skipped:
        what, _, platform = cell.label.partition(" on ")
        alike[platform, cell.reason].append(what)
    for (platform, reason), cells in alike.items():
        shown = cells[0] if len(cells) == 1 else _several(cells)
        yield f"skipped: {shown} on {platform}: {with_flags(reason)}"


def _several(cells: Sequence[str]) -> str:
    """Models, or the one model with its cells, from model and workload of at least two cells."""
    first, *others = {cell.partition(" ")[0] for cell in cells}
    if others:
        return count_of(1 + len(others), "model")
    return f"{first} ({count_of(len(cells), 'cell')})"


def _times(
    setup: Setup,
    missing: Sequence[ExportRequest],
    history: Mapping[str, float],
    *,
    starts_ray: bool,
) -> _Times:
    cores, places = idle_cores(), setup.places
    others = [cell for cell in setup.plan.cells if places[cell.device].repeat_s is None]
    n_known = sum(cell.cell_key in history for cell in others)
    return _Times(
        starting_s=estimate.RAY_S if starts_ray else 0.0,
        exporting_s=estimate.exporting_s(missing, cores) if missing else 0.0,
        idle_cores=cores,
        measuring_s=estimate.measuring_s(setup.plan, history, places),
        n_from_history=n_known,
        n_from_sizes=len(others) - n_known,
        n_simulated=len(setup.plan.cells) - len(others),
    )


def _print_times(times: _Times) -> None:
    """The estimated time of all phases, its parts, and the basis of the estimate."""
    if times.measuring_s is None:
        return
    parts = [f"{duration(times.measuring_s)} to measure"]
    if times.exporting_s:
        cores = count_of(times.idle_cores, "idle core")
        parts.insert(0, f"{duration(times.exporting_s)} to export on {cores}")
    if times.starting_s:
        parts.insert(0, f"{duration(times.starting_s)} to start and end Ray")
    whole_s = times.starting_s + times.exporting_s + times.measuring_s
    numbers = (
        (times.n_from_history, "from earlier runs"),
        (times.n_from_sizes, "from the sizes of models"),
        (times.n_simulated, "from the duration of simulated devices"),
    )
    basis = ", ".join(f"{count_of(n, 'cell')} {source}" for n, source in numbers if n)
    print(f"about {duration(whole_s)} if no repeat fails: {', '.join(parts)}")
    print(f"estimated: {basis}")


def _cached(workspace: Workspace, requests: Iterable[ExportRequest]) -> set[ExportRequest]:
    """The requests whose file is already cached."""
    cache = ArtifactCache(workspace.artifacts)
    found = set()
    for request in requests:
        try:
            if cache.peek(request) is not None:
                found.add(request)
        except ModelError:
            # An unreadable file is exported again; the sweep reports why that fails.
            continue
    return found
