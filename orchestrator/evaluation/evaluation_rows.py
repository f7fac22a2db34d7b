"""The rows that an evaluation stores: its metrics, what was evaluated, and where it ran."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import numpy as np

from fleetrank.analysis.stored.side_tables import EVALUATIONS
from fleetrank.device_agents.registry import create_agent
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.formats import format_of, runtime_of
from fleetrank.foundation.inputs import IMAGE, Workload, WorkloadKind
from fleetrank.foundation.user_file import Key
from fleetrank.foundation.vocabulary import (
    Precision,
    Runtime,
    WeightsKind,
)
from fleetrank.models.cards.card import (
    ExportRequest,
    ResolvedCard,
    Source,
    Weights,
    formats_of,
    why_not_workload,
)
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.published import checkpoint_sha256
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.scoring import (
    STRATEGIES,
    Array,
    EvaluationError,
    Metric,
    Scorer,
    Unfinished,
)
from fleetrank.orchestrator.evaluation.user_data import Tokenizer
from fleetrank.orchestrator.export import ExportTools, build_artifacts, execution_of
from fleetrank.orchestrator.store.side import append_side
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, find_device, load_devices
from fleetrank.orchestrator.workspace.model_argument import model_named
from fleetrank.orchestrator.workspace.workspace import (
    LOCAL_CPU,
    Workspace,
    git_commit,
    new_sweep_id,
    package_versions,
)

# The model that is evaluated, its weights, and the device and runtime that run it.

SEEDED = "seeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What the user says about the model and where it runs."""

    model: Annotated[str, Key("Name of a model, or a model file.")]
    checkpoint: Annotated[
        Path | None, Key("Its weights: a state dict, or the folder of a published model.")
    ] = None
    seeded: Annotated[
        bool, Key("Evaluate random weights. The result says so and means nothing.")
    ] = False
    runtime: Annotated[Runtime | None, Key("Runtime of the exported file (default: onnx).")] = None
    precision: Annotated[Precision | None, Key("Number format (default: fp32).")] = None
    device: Annotated[str, Key("Device that runs it: local-cpu, a GPU or a board.")] = LOCAL_CPU
    threads: Annotated[int, Key("Threads inside one operator.", ge=1)] = 1
    limit: Annotated[int | None, Key("Only the first N documents, examples or images.", ge=1)] = (
        None
    )
    trust: Annotated[bool, Key("Allow model-supplied code to run. Review it first.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model with its weights, and the execution on one device."""

    model: ResolvedCard
    weights: Weights
    device: DeviceFile
    runtime: Runtime
    precision: Precision
    where: Where

    @property
    def weights_name(self) -> str:
        """`seeded`, or the name of the file with the weights."""
        if self.weights.kind is WeightsKind.SEEDED:
            return SEEDED
        return Path(self.weights.checkpoint_path or self.model.card.entry).name

    def request(self, workload: Workload = IMAGE) -> ExportRequest:
        """The file that computes it."""
        return ExportRequest(
            model=self.model,
            weights=self.weights,
            format=format_of(self.runtime),
            precision=self.precision.value,
            axes=self.model.card.axes,
            workload=workload,
        )


def find_subject(workspace: Workspace, where: Where) -> Subject:
    """Finds model, weights and device.

    Raises:
        UsageError: the model has no trained weights, the runtime cannot run it, or the device
            cannot give outputs.
        CardError: the model does not exist.
    """
    name = model_named(workspace, where.model)  # may write a card, which the next line reads
    card = load_cards(workspace.cards).find(name)
    model = resolve(card)
    weights = _weights(model, where)
    runtimes = [runtime_of(one) for one in formats_of(card)]
    runtime = where.runtime or runtimes[0]
    if runtime not in runtimes:
        raise UsageError(
            f"{card.name} does not run in {runtime}", f"it runs in {', '.join(runtimes)}"
        )
    device = find_device(load_devices(workspace), where.device)
    if not device.traits.infers or device.host is not None:
        raise UsageError(
            f"device {device.name} returns no outputs to this program",
            f"evaluate on {LOCAL_CPU}, a GPU of this host or the processor of a board: the same "
            "file gives the same outputs up to rounding",
        )
    return Subject(
        model=model,
        weights=weights,
        device=device,
        runtime=runtime,
        precision=model.precision or where.precision or Precision.FP32,
        where=where,
    )


def _weights(model: ResolvedCard, where: Where) -> Weights:
    if model.card.source is Source.FILE:
        return Weights(kind=WeightsKind.EMBEDDED)
    if where.checkpoint is not None:
        with failing_as(
            UsageError, f"checkpoint {where.checkpoint} cannot be read", "check the path"
        ):
            sha256 = checkpoint_sha256(where.checkpoint)
        return Weights(
            kind=WeightsKind.CHECKPOINT,
            checkpoint_path=str(where.checkpoint.resolve()),
            checkpoint_sha256=sha256,
        )
    if where.seeded:
        return Weights(kind=WeightsKind.SEEDED)
    raise UsageError(
        f"{model.card.name} has no trained weights here, so its quality means nothing",
        "give its weights with `checkpoint=FILE`; or `seeded=true` evaluates seeded weights, which "
        "shows only that the evaluation works",
    )


def open_scorer(subject: Subject, request: ExportRequest, tools: ExportTools) -> Scorer:
    """Exports the file if it is not cached, and opens the device.

    Raises:
        UsageError: the device does not support the execution.
        EvaluationError: the file cannot be exported; the message has the reason.
    """
    agent = create_agent(subject.device.kind, subject.device.options)
    execution = execution_of(request, subject.device.kind_of, subject.where.threads)
    if (reason := agent.why_unsupported(execution)) is not None:
        raise UsageError(reason, "choose another runtime or precision")
    exports = build_artifacts([request], (), tools)
    if request not in exports.artifacts:
        failure = exports.failures.get(request)
        if failure is None:
            raise EvaluationError("the export was stopped", "run the command again")
        raise EvaluationError(failure.message, failure.remedy)
    return Scorer(agent=agent, artifact=exports.artifacts[request], execution=execution)


Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published accuracy to compare with.

    Attributes:
        tolerance: in points; a larger difference is the flag `accuracy_differs`.
    """

    value: float | None = None
    source: str | None = None
    tolerance: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRun:
    """What every evaluation needs.

    Attributes:
        done: is called with a task, its scored cases, those of an earlier run, and their number.
    """

    workspace: Workspace
    subject: Subject
    tools: ExportTools
    done: Callable[[str, int, int, int], None] = field(default=lambda *_: None)

    def head(self, items: Sequence[object]) -> int:
        """How many of the items are evaluated."""
        return min(self.subject.where.limit or len(items), len(items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One evaluation that was scored.

    Attributes:
        runtime_version: of the library on the device; `None` if an earlier run scored all cases.
        is_finite: whether the model gave every target a probability.
    """

    scorer: Scorer
    unfinished: Unfinished
    started: datetime
    runtime_version: str | None
    is_finite: bool


def limit_fact(run: EvalRun, n_items: int) -> Row:
    """The column `item_limit`: null if every item is evaluated."""
    limit = run.subject.where.limit
    return {"item_limit": limit if limit is not None and limit < n_items else None}


def store_metrics(
    run: EvalRun,
    asked: Asked,
    facts: Row,
    metrics: Sequence[Metric],
    published: Published | None = None,
) -> list[Row]:
    """Stores one row for each metric, forgets the unfinished figures, and returns the rows.

    Args:
        run: the evaluation.
        asked: how its cases were scored.
        facts: values of further columns.
        metrics: the first one is compared with the published value.
        published: of the first metric.

    Raises:
        StoreError: the rows cannot be written; the unfinished figures are kept.
    """
    base = _identity(run, asked)
    rows: list[Row] = []
    for number, metric in enumerate(metrics):
        # The published accuracy is that of the first metric.
        known = published if number == 0 and published is not None else Published()
        rows.append(
            {
                **base,
                **facts,
                "quality_metric": metric.name,
                "quality": metric.value,
                "quality_low": metric.low,
                "quality_high": metric.high,
                "baseline": metric.baseline,
                "n_items": metric.n_items,
                "right_items": metric.right_items,
                "window_losses": metric.window_losses,
                "published": known.value,
                "published_source": known.source,
                "flags": _flags(run, asked, facts, metric, known),
            }
        )
    append_side(run.workspace.results, EVALUATIONS, rows)
    asked.unfinished.remove()
    return rows


def _flags(run: EvalRun, asked: Asked, facts: Row, metric: Metric, known: Published) -> list[str]:
    flags = [SEEDED] if run.subject.weights.kind is WeightsKind.SEEDED else []
    if facts["item_limit"] is not None:
        flags.append("limited")
    if not asked.is_finite:
        flags.append("not_finite")
    if known.value is not None and metric.value is not None:
        differs = abs(metric.value - known.value) > known.tolerance
        flags += ["accuracy_differs"] if differs else []
    return flags


def _identity(run: EvalRun, asked: Asked) -> Row:
    subject, card = run.subject, run.subject.model.card
    return {
        "evaluation_id": new_sweep_id("eval"),
        "model": card.name,
        "family": card.family.value,
        "card_sha256": subject.model.sha256,
        "weights": subject.weights_name,
        "weights_sha256": subject.weights.checkpoint_sha256,
        "device": subject.device.name,
        "runtime": subject.runtime.value,
        "backend": asked.scorer.execution.backend,
        "precision": subject.precision.value,
        "recipe": subject.request().recipe,
        "artifact_sha256": asked.scorer.artifact.sha256,
        "runtime_version": asked.runtime_version,
        "fleetrank_version": package_versions(["fleetrank"]).get("fleetrank"),
        "git_commit": git_commit(run.workspace.root),
        "started_utc": asked.started,
        "finished_utc": datetime.now(UTC),
    }


# How a text is read: with which strategy, in which windows, and what goes from one to the next.

USUAL_WINDOW = 1024
"""Tokens of a window, if the model's context is not shorter: longer ones take much memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a text is read.

    Attributes:
        window: tokens that the model reads at once; `None` chooses.
        stride: new tokens in each window; `None` takes that of the strategy.
        segment: workload of a strategy with a memory, which needs one; `None` for all others.
    """

    tokenizer: Tokenizer
    strategy: str = "vanilla"
    window: int | None = None
    stride: int | None = None
    segment: Workload | None = None

    @property
    def strategy_name(self) -> str:
        """The strategy, with the sizes of its memory if it has one, such as `hmt+k8+n16`."""
        one = self.segment
        return self.strategy if one is None else f"{self.strategy}+k{one.sensory}+n{one.memories}"


def refuse_misread(reading: Reading) -> None:
    """Refuses a memory without its sizes, and sizes that a strategy does not have.

    Raises:
        UsageError: as above.
    """
    has_memory, segment = STRATEGIES[reading.strategy].has_memory, reading.segment
    if has_memory and segment is None:
        raise UsageError(
            f"strategy {reading.strategy} needs the length of a segment",
            "add `segment=64`, or with the sizes of its memory `segment=64+k8+n16`",
        )
    if not has_memory and segment is not None:
        raise UsageError(
            f"strategy {reading.strategy} has no segments", "choose `strategy=hmt`, or a window"
        )
    if has_memory and (reading.window is not None or reading.stride is not None):
        raise UsageError(
            f"strategy {reading.strategy} reads segment after segment, without a window or stride",
            "give only the length of a segment",
        )


def fitting(run: EvalRun, reading: Reading) -> tuple[LanguageShape, Workload]:
    """The numbers of the decoder, and what it computes of each window.

    Raises:
        UsageError: the model is not a decoder, or its context is too short.
    """
    card = run.subject.model.card
    usual = USUAL_WINDOW if card.language is None else min(USUAL_WINDOW, card.language.context)
    workload = Workload(kind=WorkloadKind.SCORE, length=reading.window or usual)
    if reading.segment is not None:
        workload = replace(reading.segment, kind=WorkloadKind.SCORE)
    reason = why_not_workload(card, workload)
    if reason is not None or card.language is None:
        raise UsageError(str(reason), "give a decoder of text, or a shorter window")
    return card.language, workload


def first_states(request: ExportRequest, prefix: int) -> tuple[Array, ...]:
    """At the start of a document: tokens before it are the prefix, and memories are empty.

    Empty for a model without a memory.
    """
    if request.workload.memories is None:
        return ()
    states = (one for one in request.inputs if one.state is not None)
    values = ((one, 0 if one.dtype == "float32" else prefix) for one in states)
    return tuple(np.full(one.shape, value, one.dtype) for one, value in values)
