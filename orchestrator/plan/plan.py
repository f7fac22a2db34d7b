"""Expands a sweep specification into cells; pure, so a plan can be shown, compared, resumed."""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from fleetrank.analysis.stopping_rule import StoppingRule
from fleetrank.analysis.stored.selection import MARGIN, fits_text
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.formats import format_of, runtime_of
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import Family, WeightsKind
from fleetrank.foundation.wording import nearest
from fleetrank.models.cards.card import (
    Calibration,
    ExportRequest,
    ModelCard,
    ResolvedCard,
    Source,
    Weights,
    formats_of,
)
from fleetrank.models.cards.input_size import sized_for, why_not_size
from fleetrank.models.cards.inputs import has_batch
from fleetrank.models.cards.language_card import why_not_trained, why_not_workload
from fleetrank.models.export.exporters import why_not_precision
from fleetrank.models.networks.language_cost import VALUE_BYTES, why_too_large
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.identity import Cell, Plan, RoundRules, SkippedCell, company, contest_of
from fleetrank.orchestrator.keys import cell_key, platform_key
from fleetrank.orchestrator.plan.estimate import why_not_sustained
from fleetrank.orchestrator.plan.executions import (
    Backends,
    ModelChoices,
    backends_on,
    check_axes,
    check_precisions,
    check_size,
    choices_of,
    executions,
    with_inputs,
)
from fleetrank.orchestrator.plan.pinning import DeviceCores, check_affinity
from fleetrank.orchestrator.token_costs import cost_without_file, token_costs
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, find_device
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

ALL = "all"
"""Every model that does not take tokens; workloads of language models are not compared with it."""
LANGUAGE = "language"
WhyUnsupported = Callable[[str, Execution], str | None]
"""(device name, execution) to the reason why the device cannot do it, or `None`."""
_MOST_NAMED = 10
"""Maximum number of unknown names in one message."""


def make_plan(
    spec: SweepSpec,
    models: Sequence[ResolvedCard],
    devices: Mapping[str, DeviceFile],
    *,
    cores: Mapping[str, DeviceCores] = MappingProxyType({}),
    memory: Mapping[str, int | None] = MappingProxyType({}),
    why_unsupported: WhyUnsupported = lambda _device, _execution: None,
) -> Plan:
    """Expands a specification into measurable cells and skipped cells.

    `models` are the cards of `select_models` with their identities. `cores` maps device names to
    their cores; a device that is missing counts its CPUs from 0. `memory` maps them to bytes.

    Raises:
        UsageError: a device is unknown (names the key and the nearest known one), the
            specification gives weights or precisions of a model that it does not name, a file has
            another precision than all stated ones, an axis has no size, or a list of CPUs does not
            fit its threads.
    """
    names = [model.card.name for model in models]
    for key, given in (("weights_of", spec.weights_of), ("precision_of", spec.precision_of)):
        if unknown := [word for word in given if word not in names]:
            raise _unknown(spec, key, "model of this sweep", unknown, names)
    check_precisions(spec, models)
    check_axes(spec, models)
    check_affinity(spec)
    cells: dict[str, Cell] = {}
    skipped: dict[str, SkippedCell] = {}

    # Devices share these objects, so that comparing and sending them to hosts is cheap.
    @cache
    def ways(
        cores: DeviceCores, backends: Backends, choices: ModelChoices
    ) -> tuple[Execution, ...]:
        return tuple(executions(spec, cores, backends, choices))

    @cache
    def request(model: ResolvedCard, execution: Execution) -> ExportRequest:
        return _request(spec, model, execution)

    selected = _select_devices(spec, devices)
    check_size(spec, len(models) * len(selected))
    backends = {device.name: backends_on(spec, device) for device in selected}
    for device, model in itertools.product(selected, models):
        choices = choices_of(spec, model)
        for way in ways(cores.get(device.name, DeviceCores()), backends[device.name], choices):
            execution = with_inputs(way, model)
            platform, export = platform_key(device.name, execution), request(model, execution)
            cell = Cell(
                cell_key=cell_key(export, platform),
                platform_key=platform,
                device=device.name,
                export=export,
                execution=execution,
                costs=token_costs(export.card.language, execution),
            )
            reason = (
                _why_not_here(cell.export, opens_files=device.traits.opens_files)
                or _why_too_large(cell.export, spec.limits.memory_limit_bytes)
                or _why_too_large(cell.export, memory.get(device.name))
                or why_not_sustained(
                    cell.export,
                    execution,
                    spec.measure.min_time_s,
                    is_cpu=device.kind_of.is_host_cpu,
                )
                or why_unsupported(device.name, execution)
            )
            if reason is None:
                cells[cell.cell_key] = cell
            else:
                skipped[cell.label] = SkippedCell(label=cell.label, reason=reason)
    return Plan(
        name=spec.name,
        seed=spec.seed,
        repeats=spec.repeats,
        policy=spec.measure,
        limits=spec.limits,
        hosts=spec.hosts,
        canary_every=spec.phones.canary_every,
        until=_stopping_rule(spec, tuple(cells.values())),
        rounds=_round_rules(
            spec,
            [one for one in cells.values() if devices[one.device].traits.takes_turns],
            memory,
        ),
        cells=tuple(cells.values()),
        skipped=tuple(skipped.values()),
    )


def _stopping_rule(spec: SweepSpec, cells: Sequence[Cell]) -> StoppingRule | None:
    """When the sweep stops; `None` without `until`.

    Raises:
        UsageError: no platform has two models to compare.
    """
    asked = spec.until
    if asked is None:
        return None
    rule = StoppingRule(
        question=asked.question,
        margin=MARGIN if asked.margin is None else asked.margin,
        first=asked.first,
        most=spec.repeats,
        budget_s=asked.budget,
        baseline=cells[0].export.card.name if cells else None,
        mixes_platforms=spec.rounds is not None and spec.rounds.mix_platforms,
    )
    if len({contest_of(rule, cell) for cell in cells}) == len(cells):
        raise UsageError(
            f"nothing to decide: no platform has two models for until: {asked.question}",
            "name more models, or leave `until` out",
        )
    return rule


def _round_rules(
    spec: SweepSpec, cells: Collection[Cell], memory: Mapping[str, int | None]
) -> RoundRules | None:
    """How cells take turns; `None` if no two can meet, or if runs of `min_time_s` last.

    A round gets half of the smallest device's memory at most.
    """
    if spec.rounds is None or spec.measure.min_time_s > 0:
        return None
    if len({(cell.device, company(cell, spec.rounds)) for cell in cells}) == len(cells):
        return None
    halves = [known // 2 for cell in cells if (known := memory.get(cell.device))]
    return replace(spec.rounds, memory_bytes=min([spec.rounds.memory_bytes, *halves]))


def narrow(plan: Plan, pattern: str) -> Plan:
    """Keeps the cells whose model, platform or label matches a pattern, in which `*` is any text.

    This is the language of every selector.

    Raises:
        UsageError: no cell matches.
    """
    cells = tuple(
        cell
        for cell in plan.cells
        for names in [(cell.export.card.name, cell.platform_key, cell.label)]
        if any(fits_text(pattern, name) for name in names)
    )
    if not cells:
        raise UsageError(
            f"no cell matches '{pattern}'",
            "give a model's name, or a pattern such as '*/onnx/*'; `sweep plan` lists the cells",
        )
    return replace(plan, cells=cells)


def select_models(spec: SweepSpec, cards: Mapping[str, ModelCard]) -> list[ModelCard]:
    """The cards that a specification names (by name, family, or all), each once, in its order.

    Raises:
        UsageError: a model is unknown; names the nearest known one.
    """
    selected: dict[str, ModelCard] = {}
    unknown: list[str] = []
    families = set(Family)
    for word in spec.models:
        if word in {ALL, LANGUAGE}:
            selected |= {
                name: card
                for name, card in cards.items()
                if (card.source is Source.LANGUAGE) == (word == LANGUAGE)
            }
        elif word in cards:
            selected[word] = cards[word]
        elif word in families:
            selected |= {name: card for name, card in cards.items() if card.family == word}
        else:
            unknown.append(word)
    if unknown:
        raise _unknown(spec, "models", "model", unknown, [*cards, *families, ALL, LANGUAGE])
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


def _request(spec: SweepSpec, model: ResolvedCard, execution: Execution) -> ExportRequest:
    model, axes = sized_for(model, execution.axes)
    return ExportRequest(
        model=model,
        weights=_weights(spec, model.card),
        format=format_of(execution.runtime),
        precision=execution.precision.value,
        batch=execution.batch,
        axes=axes,
        workload=execution.workload,
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
        calibration=_calibration(spec),
    )


def _calibration(spec: SweepSpec) -> Calibration | None:
    given = spec.calibrate
    if given is None or given.sha256 is None:
        return None
    return Calibration(
        path=str(given.data), n=given.n, sha256=given.sha256, preprocessing=given.preprocessing
    )


def _why_not_here(request: ExportRequest, *, opens_files: bool) -> str | None:
    """The reason why no device, or none that opens its file, can measure this; or `None`."""
    card = request.card
    formats = formats_of(card)
    if request.format not in formats:
        # A file that the user exported runs only in the runtime of its format.
        runtimes = ", ".join(runtime_of(format_) for format_ in formats)
        return f"{card.name} is a file that runs in {runtimes} only"
    own = request.model.precision
    if own is not None and request.precision != own:
        return f"{card.name} is a file in {own}"
    reason = (
        why_not_workload(card, request.workload)
        or why_not_trained(request)
        or why_not_size(card, request.axes)
    )
    if reason is not None:
        return reason
    if request.batch > 1 and card.inputs and not has_batch(card.inputs):
        return f"{card.name} has no axis 'batch': its card states [[inputs]] of fixed sizes"
    if request.weights.kind is WeightsKind.PRETRAINED and card.weights_tag is None:
        return f"{card.name} has no pretrained weights: its card names no weights_tag"
    needs_file = opens_files or cost_without_file(request) is None
    return why_not_precision(request) if needs_file else None


def _why_too_large(request: ExportRequest, memory_bytes: int | None) -> str | None:
    """The reason why weights and cache do not fit, with what fits; `None` if they may fit."""
    shape, value_bytes = request.card.language, VALUE_BYTES.get(request.precision)
    if shape is None or value_bytes is None or memory_bytes is None:
        return None
    return why_too_large(shape, request.workload, request.batch, value_bytes, memory_bytes)
