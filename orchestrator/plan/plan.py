"""Expands a sweep specification into cells; pure, so a plan can be shown, compared, resumed."""

import fnmatch
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Family, Mode, Runtime, WeightsKind
from fleetrank.foundation.wording import nearest
from fleetrank.models.cards.card import (
    ExportRequest,
    ModelCard,
    ResolvedCard,
    Source,
    Weights,
    formats_of,
)
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.identity.cells import Cell, Plan, SkippedCell
from fleetrank.orchestrator.identity.keys import cell_key, platform_key
from fleetrank.orchestrator.plan.pinning import DeviceCores, affinities, check_affinity
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, find_device
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

ALL = "all"
WhyUnsupported = Callable[[str, Execution], str | None]
"""(device name, execution) to the reason why the device cannot do it, or `None`."""

_MOST_NAMED = 10
"""Maximum number of unknown names in one message."""
_MOST_CELLS = 200_000
"""Cell limit: five times the 13 built-in models in three runtimes on a thousand devices."""
_FORMAT_OF_RUNTIME = {runtime: format_ for format_, runtime in RUNTIME_OF_FORMAT.items()}
Backends = tuple[tuple[Runtime, tuple[str, ...]], ...]
"""The backends of each runtime of a sweep on one device, in the order of the specification."""


def make_plan(
    spec: SweepSpec,
    models: Sequence[ResolvedCard],
    devices: Mapping[str, DeviceFile],
    *,
    cores: Mapping[str, DeviceCores] = MappingProxyType({}),
    why_unsupported: WhyUnsupported = lambda _device, _execution: None,
) -> Plan:
    """Expands a specification into measurable cells and skipped cells.

    `models` are the cards of `select_models` with their identities. `cores` maps device names to
    their cores; a device that is missing counts its CPUs from 0.

    Raises:
        UsageError: a device is unknown (names the key and the nearest known one), the
            specification gives weights of a model that it does not name, or its list of CPUs does
            not fit its threads.
    """
    _check_weights_of(spec, models)
    check_affinity(spec)
    cells: dict[str, Cell] = {}
    skipped: dict[str, SkippedCell] = {}

    # Devices share these objects, so that comparing and sending them to hosts is cheap.
    @cache
    def ways(cores: DeviceCores, backends: Backends) -> tuple[Execution, ...]:
        return tuple(executions(spec, cores, backends))

    @cache
    def request(model: ResolvedCard, execution: Execution) -> ExportRequest:
        return _request(spec, model, execution)

    selected = _select_devices(spec, devices)
    _check_size(spec, len(models) * len(selected))
    backends = {device.name: _backends_on(spec, device) for device in selected}
    for device, model in itertools.product(selected, models):
        for execution in ways(cores.get(device.name, DeviceCores()), backends[device.name]):
            cell = _cell(request(model, execution), device.name, execution)
            reason = _why_not_here(cell.export) or why_unsupported(device.name, execution)
            if reason is None:
                cells[cell.cell_key] = cell
            else:
                skipped[cell.label] = SkippedCell(label=cell.label, reason=reason)
    return Plan(
        name=spec.name,
        seed=spec.seed,
        repeats=spec.repeats,
        max_attempts=spec.limits.max_attempts,
        timeout_s=spec.limits.timeout_s,
        memory_limit_bytes=spec.limits.memory_limit_bytes,
        policy=spec.measure.policy(),
        canary_every=spec.phones.canary_every,
        host_wait_s=spec.hosts.wait_s,
        allows_takeover=spec.hosts.takeover,
        cells=tuple(cells.values()),
        skipped=tuple(skipped.values()),
    )


def _backends_on(spec: SweepSpec, device: DeviceFile) -> Backends:
    """The backends that the specification names, or the default of the device's kind."""
    return tuple(
        (runtime, spec.backends.get(runtime) or (device.kind_of.default_backend(runtime),))
        for runtime in dict.fromkeys(spec.runtimes)
    )


def executions(spec: SweepSpec, cores: DeviceCores, backends: Backends) -> Iterator[Execution]:
    """Every execution that the specification names, on a device with these cores and backends."""
    for runtime, names in backends:
        options = tuple(sorted(spec.runtime_options.get(runtime, {}).items()))
        for mode, backend, precision, batch, threads in itertools.product(
            dict.fromkeys(spec.modes.get(runtime, (Mode.EAGER,))),
            dict.fromkeys(names),
            dict.fromkeys(spec.precision),
            dict.fromkeys(spec.batch),
            dict.fromkeys(spec.threads),
        ):
            for affinity in affinities(spec, threads, cores):
                yield Execution(
                    runtime=runtime,
                    backend=backend,
                    mode=mode,
                    precision=precision,
                    batch=batch,
                    threads=threads,
                    affinity=affinity,
                    options=options,
                )


def _check_size(spec: SweepSpec, n_pairs: int) -> None:
    """Counts the executions before they are created; clusters of phones may double them."""
    n_values = {
        "backends": sum(
            len(set(spec.modes.get(runtime, (Mode.EAGER,))))
            * len(set(spec.backends.get(runtime, ("",))))
            for runtime in set(spec.runtimes)
        ),
        "precision": len(set(spec.precision)),
        "batch": len(set(spec.batch)),
        "threads": len(set(spec.threads)),
    }
    n_cells = n_pairs * math.prod(n_values.values())
    if n_cells > _MOST_CELLS:
        longest = max(n_values, key=lambda key: n_values[key])
        raise UsageError(
            f"sweep '{spec.name}' has {n_cells:,} combinations, of which key '{longest}' has "
            f"{n_values[longest]:,} values; the limit is {_MOST_CELLS:,} combinations",
            f"shorten '{longest}', or split the sweep",
        )


def narrow(plan: Plan, pattern: str) -> Plan:
    """Keeps the cells whose model, platform or label matches a pattern, in which `*` is any text.

    This is the language of every selector. A shell's `?` and `[x]` count only if nothing matches
    otherwise: older versions accepted them, and such a sweep can still be resumed.

    Raises:
        UsageError: no cell matches.
    """
    language = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    of_a_shell = re.compile(fnmatch.translate(pattern))
    cells = _matching(plan, language) or _matching(plan, of_a_shell)
    if not cells:
        raise UsageError(
            f"no cell matches '{pattern}'",
            "give a model's name, or a pattern such as '*/onnx/*'; `sweep plan` lists the cells",
        )
    return replace(plan, cells=cells)


def _matching(plan: Plan, pattern: re.Pattern[str]) -> tuple[Cell, ...]:
    return tuple(
        cell
        for cell in plan.cells
        if any(map(pattern.fullmatch, (cell.export.card.name, cell.platform_key, cell.label)))
    )


def select_models(spec: SweepSpec, cards: Mapping[str, ModelCard]) -> list[ModelCard]:
    """The cards that a specification names (by name, family, or all), each once, in its order.

    Raises:
        UsageError: a model is unknown; names the nearest known one.
    """
    selected: dict[str, ModelCard] = {}
    unknown: list[str] = []
    families = set(Family)
    for word in spec.models:
        if word == ALL:
            selected |= cards
        elif word in cards:
            selected[word] = cards[word]
        elif word in families:
            selected |= {name: card for name, card in cards.items() if card.family == word}
        else:
            unknown.append(word)
    if unknown:
        raise _unknown(spec, "models", "model", unknown, [*cards, *families, ALL])
    return list(selected.values())


def _select_devices(spec: SweepSpec, devices: Mapping[str, DeviceFile]) -> list[DeviceFile]:
    selected: dict[str, DeviceFile] = {}
    for word in spec.devices:
        if word == ALL:
            selected |= {device.name: device for device in devices.values()}
        else:
            device = find_device(devices, word)
            selected[device.name] = device
    return list(selected.values())


def _check_weights_of(spec: SweepSpec, models: Sequence[ResolvedCard]) -> None:
    names = [model.card.name for model in models]
    if unknown := [word for word in spec.weights_of if word not in names]:
        raise _unknown(spec, "weights_of", "model of this sweep", unknown, names)


def _unknown(
    spec: SweepSpec, key: str, what: str, words: Sequence[str], choices: Sequence[str]
) -> UsageError:
    listed = [shortened(word) for word in words[:_MOST_NAMED]]
    guesses = [f"'{guess}'" for word in listed if (guess := nearest(word, choices))]
    named = ", ".join(f"'{word}'" for word in listed)
    if n_more := len(words) - len(listed):
        named += f" and {n_more:,} more"
    return UsageError(
        f"sweep '{spec.name}', key '{key}': unknown {what} {named}",
        f"did you mean {', '.join(guesses)}?" if guesses else "`fleetrank models list` shows all",
    )


def _cell(request: ExportRequest, device: str, execution: Execution) -> Cell:
    platform = platform_key(device, execution)
    return Cell(
        cell_key=cell_key(request, platform),
        platform_key=platform,
        device=device,
        export=request,
        execution=execution,
    )


def _request(spec: SweepSpec, model: ResolvedCard, execution: Execution) -> ExportRequest:
    return ExportRequest(
        model=model,
        weights=_weights(spec, model.card),
        format=_FORMAT_OF_RUNTIME[execution.runtime],
        precision=execution.precision.value,
        batch=execution.batch,
    )


def _weights(spec: SweepSpec, card: ModelCard) -> Weights:
    if card.source is Source.FILE:
        return Weights(kind=WeightsKind.EMBEDDED)
    choice = spec.weights_of.get(card.name, spec.weights)
    return Weights(
        kind=WeightsKind(choice.kind),
        seed=choice.seed,
        checkpoint_path=None if choice.path is None else str(choice.path),
        checkpoint_sha256=choice.sha256,
    )


def _why_not_here(request: ExportRequest) -> str | None:
    """The reason why no device can measure this; `None` if one can."""
    card = request.card
    formats = formats_of(card)
    if request.format not in formats:
        # A file that the user exported runs only in the runtime of its format.
        runtimes = ", ".join(RUNTIME_OF_FORMAT[format_] for format_ in formats)
        return f"{card.name} is a file that runs in {runtimes} only"
    if request.weights.kind is WeightsKind.PRETRAINED and card.weights_tag is None:
        return f"{card.name} has no pretrained weights: its card names no weights_tag"
    return None
