"""Exports and verifies one file, or finds it in the cache."""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import psutil

from fleetrank.device_agents.comparison import compare_files
from fleetrank.device_agents.contract.kind import Kind
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import Execution, InferTask, RepeatLimits
from fleetrank.device_agents.registry import HOST_CPU, load_kind
from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.formats import runtime_of
from fleetrank.foundation.lease import Use, host_lease
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import ErrorKind, Precision
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import Artifact, ExportRequest, StagedExport
from fleetrank.models.export.process import ExportChild, ExportOrder
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.plan.estimate import export_limit_s
from fleetrank.orchestrator.progress import Subscriber
from fleetrank.orchestrator.progress_events import ExportFinished, ExportStarted, Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTools:
    """The tools that the stage uses.

    Attributes:
        infer: runs a file over stored inputs in a worker on this host.
        purpose: who exports, shown to processes that wait for this host.
        is_trusted: the user allows model-supplied code to run.
    """

    cache: ArtifactCache
    infer: Callable[[InferTask], Failure | None]
    emit: Subscriber
    switch: StopSwitch
    purpose: str = "the export of models"
    is_trusted: bool = False

    def turn(self) -> AbstractContextManager[bool]:
        """The host's lease for one step of this work; false if a stop was requested before."""
        return host_turn(self.purpose, self.emit, self.switch)


def host_turn(purpose: str, emit: Subscriber, switch: StopSwitch) -> AbstractContextManager[bool]:
    """The host's lease for work that this process does itself; false if a stop came before."""
    return host_lease(
        purpose,
        use=Use.WORK,
        on_wait=lambda message: emit(Notice(level="info", message=message)),
        give_up=lambda: switch.is_stopping,
    )


Result = Artifact | Failure
"""A failure is permanent, and shared by all cells that need the file."""


def obtain(request: ExportRequest, tools: ExportTools, child: ExportChild) -> Result:
    """The file of one request; an error of any kind is a failure."""
    started_s = perf_counter()
    is_cached = False
    result: Result
    try:
        cached = tools.cache.find(request)
        is_cached = cached is not None
        result = cached or _export(request, tools, child)
    except FleetError as error:
        result = _failure(ErrorKind.EXPORT_FAILED, error.message, error.remedy)
    except Exception as error:
        result = _failure(
            ErrorKind.EXPORT_FAILED,
            f"{type(error).__name__}: {error}",
            "this is a bug in fleetrank: please report it",
        )
    tools.emit(
        ExportFinished(
            model=request.card.name,
            workload=str(request.workload),
            format=request.format,
            precision=request.precision,
            seconds=perf_counter() - started_s,
            is_cached=is_cached,
            error=result.message if isinstance(result, Failure) else None,
            remedy=result.remedy if isinstance(result, Failure) else None,
        )
    )
    return result


def _export(request: ExportRequest, tools: ExportTools, child: ExportChild) -> Result:
    name, workload = request.card.name, str(request.workload)
    precision = request.precision
    tools.emit(
        ExportStarted(model=name, format=request.format, workload=workload, precision=precision)
    )
    out_dir = tools.cache.staging_dir(request)
    try:
        order = ExportOrder(
            request=request,
            out_dir=out_dir,
            # A higher limit than the machine's memory would only cause swapping until the timeout.
            memory_limit_bytes=psutil.virtual_memory().total,
            is_trusted=tools.is_trusted,
        )
        staged = child.export(order, export_limit_s(request))
        verdict = _verify(request, staged, tools)
        if isinstance(verdict, Failure):
            return verdict
        return tools.cache.commit(request, staged, verdict)
    finally:
        # Files of a failed export are useless, and the disk may be full.
        shutil.rmtree(out_dir, ignore_errors=True)


def _verify(
    request: ExportRequest, staged: StagedExport, tools: ExportTools
) -> OutputComparison | Failure | None:
    """The equal outputs, a failure, or `None` without an original to compare with."""
    if staged.inputs_path is None or staged.reference_path is None:
        return None
    outputs_path = staged.path.parent / "outputs.npz"
    failure = tools.infer(_infer_task(request, staged, staged.inputs_path, outputs_path))
    if failure is not None:
        return replace(failure, stage="verify", is_transient=False)
    comparison = compare_files(staged.reference_path, outputs_path, request.precision)
    if comparison.is_equal:
        return comparison
    return _failure(
        ErrorKind.VERIFICATION_FAILED,
        f"{request.card.name} as {request.format} gives different outputs than its original: "
        f"{comparison.reason}",
        "remove this model or runtime, or try another version of the exporter",
    )


def execution_of(request: ExportRequest, kind: Kind, threads: int = 1) -> Execution:
    """How a device of a kind runs the file of a request, on its usual backend."""
    runtime = runtime_of(request.format)
    return Execution(
        runtime=runtime,
        backend=kind.default_backend(runtime),
        precision=Precision(request.precision),
        batch=request.batch,
        threads=threads,
        axes=request.axes,
        inputs=request.inputs,
        workload=request.workload,
    )


def _infer_task(
    request: ExportRequest, staged: StagedExport, inputs_path: Path, outputs_path: Path
) -> InferTask:
    return InferTask(
        task_id=f"verify/{request.card.name}/{request.format}",
        artifact_path=str(staged.path),
        artifact_sha256=file_sha256(staged.path),
        execution=execution_of(request, load_kind(HOST_CPU)),
        inputs_path=str(inputs_path),
        outputs_path=str(outputs_path),
        # Exported from a network just now, so there is an original to compare with.
        is_trusted=True,
        limits=RepeatLimits(timeout_s=export_limit_s(request)),
    )


def _failure(kind: ErrorKind, message: str, remedy: str) -> Failure:
    stage = "verify" if kind is ErrorKind.VERIFICATION_FAILED else "export"
    return Failure(kind=kind, message=message, remedy=remedy, is_transient=False, stage=stage)
