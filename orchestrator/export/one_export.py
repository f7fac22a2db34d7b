"""Exports and verifies one file, or finds it in the cache."""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import psutil

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import Execution, InferTask
from fleetrank.device_agents.registry import HOST_CPU, load_kind
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, ErrorKind, Precision, Runtime
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import Artifact, ExportRequest, StagedExport
from fleetrank.models.errors import ModelError
from fleetrank.models.export.process import ExportChild
from fleetrank.models.networks.primer import primer_request
from fleetrank.models.verify import compare_files
from fleetrank.orchestrator.dispatch.drive.stop_switch import StopSwitch
from fleetrank.orchestrator.plan.estimate import export_limit_s
from fleetrank.orchestrator.progress.events import ExportFinished, ExportStarted, Notice, Subscriber


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
        return host_lease(
            self.purpose,
            on_wait=lambda message: self.emit(Notice(level="info", message=message)),
            give_up=lambda: self.switch.is_stopping,
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
    except ModelError as error:
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
            seconds=perf_counter() - started_s,
            is_cached=is_cached,
            error=result.message if isinstance(result, Failure) else None,
            remedy=result.remedy if isinstance(result, Failure) else None,
        )
    )
    return result


def _export(request: ExportRequest, tools: ExportTools, child: ExportChild) -> Result:
    name, workload = request.card.name, str(request.workload)
    tools.emit(ExportStarted(model=name, format=request.format, workload=workload))
    # The primer is fleetrank's own code, used through an entry point.
    is_primer = request == primer_request(request.format)
    out_dir = tools.cache.staging_dir(request)
    try:
        staged = child.export(
            request,
            out_dir,
            timeout_s=export_limit_s(request),
            # A higher limit than the machine's memory would only cause swapping until the timeout.
            memory_limit_bytes=psutil.virtual_memory().total,
            is_trusted=tools.is_trusted or is_primer,
        )
        verdict = _verify(request, staged, tools)
        if isinstance(verdict, Failure):
            return verdict
        return tools.cache.commit(request, staged, verdict)
    finally:
        # Files of a failed export are useless, and the disk may be full.
        shutil.rmtree(out_dir, ignore_errors=True)


def _verify(
    request: ExportRequest, staged: StagedExport, tools: ExportTools
) -> float | Failure | None:
    """The relative error, a failure, or `None` without an original to compare with."""
    if staged.inputs_path is None or staged.reference_path is None:
        return None
    outputs_path = staged.path.parent / "outputs.npz"
    failure = tools.infer(_infer_task(request, staged, staged.inputs_path, outputs_path))
    if failure is not None:
        return replace(failure, stage="verify", is_transient=False)
    comparison = compare_files(staged.reference_path, outputs_path, request.precision)
    if comparison.is_equal:
        return comparison.max_relative_error
    return _failure(
        ErrorKind.VERIFICATION_FAILED,
        f"{request.card.name} as {request.format} gives different outputs than its original: "
        f"{comparison.reason}",
        "remove this model or runtime, or try another version of the exporter",
    )


def _infer_task(
    request: ExportRequest, staged: StagedExport, inputs_path: Path, outputs_path: Path
) -> InferTask:
    runtime = Runtime(RUNTIME_OF_FORMAT[request.format])
    return InferTask(
        task_id=f"verify/{request.card.name}/{request.format}",
        artifact_path=str(staged.path),
        artifact_sha256=file_sha256(staged.path),
        execution=Execution(
            runtime=runtime,
            backend=load_kind(HOST_CPU).default_backend(runtime),
            precision=Precision(request.precision),
            batch=request.batch,
            inputs=request.inputs,
            workload=request.workload,
        ),
        inputs_path=str(inputs_path),
        has_whole_cases=staged.has_whole_cases,
        outputs_path=str(outputs_path),
        # Exported from a network just now, so there is an original to compare with.
        is_trusted=True,
        timeout_s=export_limit_s(request),
    )


def _failure(kind: ErrorKind, message: str, remedy: str) -> Failure:
    stage = "verify" if kind is ErrorKind.VERIFICATION_FAILED else "export"
    return Failure(kind=kind, message=message, remedy=remedy, is_transient=False, stage=stage)
