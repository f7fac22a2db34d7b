"""The executions that a sweep specification names for a model on a device; pure functions."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.inputs import Axes
from fleetrank.foundation.vocabulary import Mode, Precision, Runtime
from fleetrank.foundation.wording import did_you_mean
from fleetrank.foundation.workload import IMAGE, Workload, WorkloadKind
from fleetrank.models.cards.card import ModelCard, ResolvedCard
from fleetrank.models.cards.input_size import INPUT_SIZE, takes_images
from fleetrank.models.cards.inputs import BATCH, axis_names
from fleetrank.models.cards.language_card import is_own_decoder
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.plan.pinning import DeviceCores, affinities
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

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
