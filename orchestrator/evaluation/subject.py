"""The model that is evaluated, its weights, and the device and runtime that run it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fleetrank.device_agents.registry import create_agent
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.formats import format_of, runtime_of
from fleetrank.foundation.user_file import Key
from fleetrank.foundation.vocabulary import Precision, Runtime, WeightsKind
from fleetrank.foundation.workload import IMAGE, Workload
from fleetrank.models.cards.card import ExportRequest, ResolvedCard, Source, Weights, formats_of
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.published import checkpoint_sha256
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.scoring import EvaluationError, Scorer
from fleetrank.orchestrator.export import build_artifacts
from fleetrank.orchestrator.one_export import ExportTools, execution_of
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, find_device, load_devices
from fleetrank.orchestrator.workspace.model_argument import model_named
from fleetrank.orchestrator.workspace.workspace import LOCAL_CPU, Workspace

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
