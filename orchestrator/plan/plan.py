"""Expands a sweep specification into cells; pure, so a plan can be shown, compared, resumed."""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from fleetrank.analysis.stopping_rule import StoppingRule
from fleetrank.analysis.stored.selection import MARGIN, fits_text
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.errors import count_of, did_you_mean, nearest, shortened
from fleetrank.foundation.formats import format_of, runtime_of
from fleetrank.foundation.inputs import IMAGE, Axes, Workload, WorkloadKind
from fleetrank.foundation.vocabulary import (
    CpuChoice,
    Family,
    Mode,
    Precision,
    Runtime,
    WeightsKind,
)
from fleetrank.models.cards.card import (
    INPUT_SIZE,
    Calibration,
    ExportRequest,
    ModelCard,
    ResolvedCard,
    Source,
    Weights,
    formats_of,
    is_own_decoder,
    sized_for,
    takes_images,
    why_not_size,
    why_not_trained,
    why_not_workload,
)
from fleetrank.models.cards.inputs import BATCH, axis_names, has_batch
from fleetrank.models.export.exporters import why_not_precision
from fleetrank.models.networks.cost import VALUE_BYTES, why_too_large
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.identity import (
    Cell,
    Plan,
    RoundRules,
    SkippedCell,
    cell_key,
    company,
    contest_of,
    cost_without_file,
    platform_key,
)
from fleetrank.orchestrator.plan.estimate import why_not_sustained
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, find_device
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

# Decides which cores a cell is pinned to; pure functions.

Affinity = tuple[int, ...] | None
_FREE: tuple[CpuChoice, Affinity] = (CpuChoice.FREE, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCores:
    """The cores of one device.

    Attributes:
        one_per_core: one logical CPU of each core, in the order of use; `None` counts from 0, and
            empty pins nothing.
        clusters: a phone's groups of CPUs of one kind, fastest first; empty for other devices.
        small: CPUs of the clusters of smaller kinds.
    """

    one_per_core: tuple[int, ...] | None = None
    clusters: tuple[tuple[int, ...], ...] = ()
    small: tuple[int, ...] = ()


def affinities(
    spec: SweepSpec, threads: int, cores: DeviceCores
) -> tuple[tuple[CpuChoice, Affinity], ...]:
    """What a specification asks for, and the CPUs of it; `None` leaves it to the system.

    A phone's repeat gets a whole cluster and its threads may move inside it, because threads
    cannot be pinned individually there.
    """
    if spec.affinity == "free":
        return (_FREE,)
    if isinstance(spec.affinity, tuple):
        return ((CpuChoice.LISTED, spec.affinity[:threads]),)
    if cores.clusters:
        words = spec.phones.clusters
        found = dict.fromkeys(cluster_of(word, threads, cores) for word in words)
        return tuple(_FREE if cpus is None else (CpuChoice.CLUSTER, cpus) for cpus in found)
    if cores.one_per_core is None:
        return ((CpuChoice.FIRST_CORES, tuple(range(threads))),)
    # With fewer cores than threads (hyper-threading) any pinning would be worse than no pinning.
    fits = threads <= len(cores.one_per_core)
    return ((CpuChoice.FIRST_CORES, cores.one_per_core[:threads]) if fits else _FREE,)


def replica_cpus(
    spec: SweepSpec, execution: Execution, n_processes: int, cores: DeviceCores
) -> tuple[tuple[int, ...], ...] | None:
    """The CPUs of each process of a set; `None` leaves them to the system.

    Each process has CPUs that no other one has, as many as it has threads. With fewer CPUs than
    threads all processes have all CPUs: unequal shares would make some of them slower than others.
    """
    pool = spec.affinity if isinstance(spec.affinity, tuple) else cores.one_per_core
    if execution.affinity is None or not pool:
        return None
    n_threads = execution.threads
    if n_processes * n_threads > len(pool):
        return (tuple(pool),) * n_processes
    return tuple(pool[n * n_threads : (n + 1) * n_threads] for n in range(n_processes))


def cluster_of(word: str, threads: int, cores: DeviceCores) -> Affinity:
    """The CPUs of a phone's cluster, by the name of the cluster.

    `auto` is the fastest cluster with a core for every thread, because two threads would share a
    single prime core; else all clusters together, but those of smaller kinds. A thread on a small
    core makes all others wait, so `None`, the system's choice, follows if these are too few.
    `middle` is the second fastest of three clusters, otherwise the same as `big`. A cluster
    requested by name is used even if it has fewer cores than threads.
    """
    clusters = cores.clusters
    if word == "auto":
        large = [cpus for cpus in clusters if not set(cpus) <= set(cores.small)]
        joined = tuple(cpu for cpus in large for cpu in cpus)
        return next((cpus for cpus in (*large, joined) if len(cpus) >= threads), None)
    if word == "little":
        return clusters[-1]
    return clusters[1] if word == "middle" and len(clusters) > 2 else clusters[0]


def check_affinity(spec: SweepSpec) -> None:
    """Rejects a list of CPUs that does not match the number of threads.

    Raises:
        UsageError: names the key and the problem.
    """
    if not isinstance(spec.affinity, tuple):
        return
    most = max(spec.threads)
    if len(set(spec.affinity)) != len(spec.affinity):
        problem = "a CPU is listed twice"
    elif len(spec.affinity) < most:
        too_few = count_of(len(spec.affinity), "CPU is", "CPUs are")
        problem = f"{too_few} too few for {count_of(most, 'thread')}"
    else:
        return
    raise UsageError(
        f"sweep '{spec.name}', key 'affinity': {problem}",
        f"list at least {count_of(most, 'different CPU')}, or omit it to use one CPU of each core",
    )


# The executions that a sweep specification names for a model on a device; pure functions.

_MOST_CELLS = 200_000
"""Cell limit: five times the 13 built-in models in three runtimes on a thousand devices."""
USUAL_WORKLOADS = tuple(map(Workload.parse, ("prefill@128", "decode@128", "encode@128")))
"""Of a language model in a sweep that states none, those that it answers."""
Backends = tuple[tuple[Runtime, tuple[str, ...]], ...]
"""The backends of each runtime of a sweep on one device, in the order of the specification."""


def backends_on(spec: SweepSpec, device: DeviceFile) -> Backends:
    """The backends that the specification names, or the default of the device's kind."""
    return tuple(
        (runtime, spec.backends.get(runtime) or (device.kind_of.default_backend(runtime),))
        for runtime in dict.fromkeys(spec.runtimes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoices:
    """What a sweep varies by model.

    Attributes:
        precisions: by default fp32, and for a file its own.
        axes: every combination of sizes of the model's named axes; one empty without any.
        workloads: those of the sweep that the model answers, or else the usual ones of its kind.
    """

    precisions: tuple[Precision, ...]
    axes: tuple[Axes, ...]
    workloads: tuple[Workload, ...] = (IMAGE,)


def choices_of(spec: SweepSpec, model: ResolvedCard) -> ModelChoices:
    """The choices of a model: the specification's, otherwise the defaults of its card."""
    names = axes_of(model)
    if INPUT_SIZE in spec.axes and takes_images(model.card):
        names = (INPUT_SIZE,)
    defaults = dict(model.card.axes)
    sizes = [spec.axes.get(name) or (defaults[name],) for name in names]
    return ModelChoices(
        precisions=spec.precision_of.get(model.card.name)
        or spec.precision
        or (model.precision or Precision.FP32,),
        axes=tuple(
            tuple(zip(names, combination, strict=True))
            for combination in itertools.product(*map(dict.fromkeys, sizes))
        ),
        workloads=workloads_of(model.card, spec.workloads),
    )


def axes_of(model: ResolvedCard) -> tuple[str, ...]:
    """The named axes of a model whose sizes a sweep gives by name."""
    return axis_names(model.card.inputs, takes_tokens=bool(model.card.workloads))


def workloads_of(card: ModelCard, stated: Iterable[Workload] | None) -> tuple[Workload, ...]:
    """All stated ones for a language model, so that those it does not answer are listed.

    Without any, the usual ones that it answers. Of other models only inferences of images and steps
    of training; without any, images.
    """
    kinds = card.workloads
    if not kinds:
        mine = {WorkloadKind.IMAGE, WorkloadKind.TRAIN}
        return tuple(dict.fromkeys(one for one in stated or () if one.kind in mine)) or (IMAGE,)
    usual = [workload for workload in USUAL_WORKLOADS if workload.kind in kinds]
    return tuple(dict.fromkeys(stated or usual))


def with_inputs(execution: Execution, model: ResolvedCard) -> Execution:
    """The execution with the inputs that the model's card states, if it states any."""
    kinds, workload = model.card.workloads, execution.workload
    answered = {*kinds, WorkloadKind.TRAIN} if workload.length is not None else set(kinds)
    if is_own_decoder(model.card):
        answered |= {WorkloadKind.SEGMENT}
    if not model.card.inputs or (kinds and workload.kind not in answered):
        return execution
    inputs = model.sized_inputs(execution.axes, execution.batch, workload)
    return replace(execution, inputs=inputs)


def executions(
    spec: SweepSpec, cores: DeviceCores, backends: Backends, choices: ModelChoices
) -> Iterator[Execution]:
    """Every execution that the specification names, on a device with these cores and backends."""
    for runtime, names in backends:
        options = tuple(sorted(spec.runtime_options.get(runtime, {}).items()))
        for mode, backend, precision, batch, threads, axes, workload in itertools.product(
            dict.fromkeys(spec.modes.get(runtime, (Mode.EAGER,))),
            dict.fromkeys(names),
            dict.fromkeys(choices.precisions),
            dict.fromkeys(spec.batch),
            dict.fromkeys(spec.threads),
            choices.axes,
            choices.workloads,
        ):
            for choice, affinity in affinities(spec, threads, cores):
                yield Execution(
                    runtime=runtime,
                    backend=backend,
                    mode=mode,
                    precision=precision,
                    batch=workload.batch or batch,
                    threads=threads,
                    affinity=affinity,
                    cpu_choice=choice,
                    options=options,
                    axes=axes,
                    workload=workload,
                )


def check_size(spec: SweepSpec, n_pairs: int) -> None:
    """Counts the executions before they are created; clusters of phones may double them.

    Raises:
        UsageError: there are too many; names the longest list.
    """
    n_values = {
        "backends": sum(
            len(set(spec.modes.get(runtime, (Mode.EAGER,))))
            * len(set(spec.backends.get(runtime, ("",))))
            for runtime in set(spec.runtimes)
        ),
        "precision": len(set(spec.precision or (None,))),
        "batch": len(set(spec.batch)),
        "threads": len(set(spec.threads)),
        "axes": math.prod(len(set(sizes)) for sizes in spec.axes.values()),
        "workloads": len(set(spec.workloads or ())) or len(USUAL_WORKLOADS),
    }
    n_cells = n_pairs * math.prod(n_values.values())
    if n_cells > _MOST_CELLS:
        longest = max(n_values, key=lambda key: n_values[key])
        raise UsageError(
            f"sweep '{spec.name}' has {n_cells:,} combinations, of which key '{longest}' has "
            f"{n_values[longest]:,} values; the limit is {_MOST_CELLS:,} combinations",
            f"shorten '{longest}', or split the sweep",
        )


def check_precisions(spec: SweepSpec, models: Sequence[ResolvedCard]) -> None:
    """Rejects a specification that states only precisions that a file does not have.

    Raises:
        UsageError: names the file, its precision and the stated ones.
    """
    for model in models:
        claimed = spec.precision_of.get(model.card.name) or spec.precision or ()
        if claimed and model.precision is not None and model.precision not in claimed:
            raise UsageError(
                f"sweep '{spec.name}', key 'precision': {model.card.entry} (model "
                f"{model.card.name}) is {model.precision}, not {' or '.join(claimed)}",
                f"add {model.precision} to 'precision', or remove the key: a file is measured in "
                "its own precision",
            )


def check_axes(spec: SweepSpec, models: Sequence[ResolvedCard]) -> None:
    """Checks that every axis of a model has a size, and that every stated axis belongs to a model.

    Raises:
        UsageError: names the axis and the remedy.
    """
    used = {name for model in models for name in axes_of(model)}
    if any(takes_images(model.card) for model in models):
        used.add(INPUT_SIZE)
    for name in spec.axes:
        if name not in used:
            known = f"axes of its models: {', '.join(sorted(used)) or 'none'}"
            raise UsageError(
                f"sweep '{spec.name}', key 'axes': no model of it has an axis '{name}'",
                "the batch has its own key 'batch'"
                if name == BATCH
                else did_you_mean(name, used, known),
            )
    for model in models:
        for name in axes_of(model):
            if name not in spec.axes and name not in dict(model.card.axes):
                raise UsageError(
                    f"sweep '{spec.name}', key 'axes': axis '{name}' of {model.card.name} has no "
                    "size",
                    f"add `axes: {{{name}: [128, 512]}}` to the sweep, or a default to the card: "
                    f"`axes = {{ {name} = 128 }}`",
                )


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
        max_attempts=spec.limits.max_attempts,
        timeout_s=spec.limits.timeout_s,
        memory_limit_bytes=spec.limits.memory_limit_bytes,
        policy=spec.measure,
        canary_every=spec.phones.canary_every,
        host_wait_s=spec.hosts.wait_s,
        allows_takeover=spec.hosts.takeover,
        quiet_s=spec.hosts.longest_quiet_s(),
        repeats_disturbed=spec.hosts.quiet == "retry",
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
