"""Exports and verifies every file that a sweep needs, before any measurement."""

import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import psutil

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import Execution, InferTask
from fleetrank.device_agents.registry import HOST_CPU, create_agent, load_kind
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, ErrorKind, Format, Precision, Runtime
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import Artifact, ExportRequest, StagedExport
from fleetrank.models.errors import ModelError
from fleetrank.models.export.process import export_in_child, peak_memory_estimate_bytes
from fleetrank.models.networks.primer import canary_request, primer_request
from fleetrank.models.verify import compare_files
from fleetrank.orchestrator.dispatch.drive.stop_switch import StopSwitch
from fleetrank.orchestrator.errors import NothingToDoError
from fleetrank.orchestrator.progress.displays import PlainLines
from fleetrank.orchestrator.progress.events import ExportFinished, ExportStarted, Notice, Subscriber
from fleetrank.orchestrator.progress.wording import STOPPING
from fleetrank.orchestrator.workspace.workspace import Workspace

_TIMEOUT_S = 900.0
"""Time limit; the slowest of the 39 exports of built-in models takes 16 s on two idle cores."""
_POLL_S = 0.25
"""Longest sleep between two checks of the stop switch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTools:
    """The tools that the stage uses.

    Attributes:
        infer: runs a file over stored inputs in a worker on this host.
        is_trusted: the user allows model-supplied code to run.
    """

    cache: ArtifactCache
    infer: Callable[[InferTask], Failure | None]
    emit: Subscriber
    switch: StopSwitch
    is_trusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exports:
    """The results of the requests.

    Attributes:
        failures: why a file is missing; permanent, and shared by all cells that need it.
        is_complete: false if a stop was requested before all files were exported.
    """

    artifacts: Mapping[ExportRequest, Artifact]
    failures: Mapping[ExportRequest, Failure]
    primers: Mapping[Format, Artifact]
    is_complete: bool


def build_artifacts(
    requests: Iterable[ExportRequest], primed: Iterable[Format], tools: ExportTools
) -> Exports:
    """Finds or exports the file of each distinct request, in parallel as memory allows.

    Measuring starts after it returns, so that no export disturbs a measurement.

    Args:
        requests: files to measure; equal ones are exported once.
        primed: formats that also need a primer.
        tools: the tools to use.
    """
    wanted = tuple(dict.fromkeys(requests))
    primers = {primer_request(format_): format_ for format_ in sorted(set(primed))}
    results, is_complete = _run_all((*primers, *wanted), tools)
    artifacts = {r: found for r, found in results.items() if isinstance(found, Artifact)}
    failures = {r: found for r, found in results.items() if isinstance(found, Failure)}
    for request in primers:
        if request in failures:
            tools.emit(
                Notice(
                    level="warning",
                    message=f"no primer for {request.format}, so memory figures include what the "
                    f"runtime itself loads: {failures[request].message}",
                )
            )
    return Exports(
        artifacts={r: found for r, found in artifacts.items() if r not in primers},
        failures={r: found for r, found in failures.items() if r not in primers},
        primers={primers[r]: found for r, found in artifacts.items() if r in primers},
        is_complete=is_complete,
    )


def canary_artifact(workspace: Workspace) -> Artifact:
    """Finds or exports the canary; it is verified like any other export.

    Raises:
        NothingToDoError: it cannot be exported here; the remedy names what is missing.
    """
    request = canary_request()
    cache = ArtifactCache(workspace.artifacts)
    found = cache.find(request)
    if found is not None:
        return found
    tools = ExportTools(
        cache=cache,
        infer=create_agent(HOST_CPU, {}).infer,
        emit=PlainLines(sys.stderr),
        switch=StopSwitch(),
    )
    with host_lease("the export of the canary model"):
        exports = build_artifacts([request], (), tools)
    if request in exports.failures:
        failure = exports.failures[request]
        raise NothingToDoError(
            f"the canary model is not available: {failure.message}", failure.remedy
        )
    return exports.artifacts[request]


def may_start(
    estimate_bytes: int, running_bytes: Sequence[int], *, available_bytes: int, cores: int
) -> bool:
    """Whether one more export may start beside the running ones; the first one always may.

    A running export may still grow, so its whole estimate is reserved.
    """
    if not running_bytes:
        return True
    fits = sum(running_bytes) + estimate_bytes <= available_bytes
    return fits and len(running_bytes) < cores


_Result = Artifact | Failure


def _run_all(
    requests: Sequence[ExportRequest], tools: ExportTools
) -> tuple[dict[ExportRequest, _Result], bool]:
    pending, running = list(requests), dict[ExportRequest, int]()
    results: dict[ExportRequest, _Result] = {}
    done: queue.SimpleQueue[tuple[ExportRequest, _Result]] = queue.SimpleQueue()
    is_told = False
    while pending or running:
        if tools.switch.is_stopping and not is_told:
            is_told = True
            tools.emit(Notice(level="info", message=STOPPING))
        if tools.switch.is_now or (tools.switch.is_stopping and not running):
            return results, False
        while pending and not tools.switch.is_stopping and _has_room(pending[0], running):
            request = pending.pop(0)
            running[request] = peak_memory_estimate_bytes(request)
            # Daemon threads: an immediate stop does not wait for them, and their children end too.
            threading.Thread(target=_work, args=(request, tools, done), daemon=True).start()
        try:
            request, result = done.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        del running[request]
        results[request] = result
    return results, True


def _has_room(request: ExportRequest, running: Mapping[ExportRequest, int]) -> bool:
    return may_start(
        peak_memory_estimate_bytes(request),
        tuple(running.values()),
        available_bytes=psutil.virtual_memory().available,
        cores=os.cpu_count() or 1,
    )


def _work(
    request: ExportRequest,
    tools: ExportTools,
    done: queue.SimpleQueue[tuple[ExportRequest, _Result]],
) -> None:
    """Handles one request; always puts an answer into the queue, also after an error."""
    started_s = perf_counter()
    is_cached = False
    result: _Result
    try:
        cached = tools.cache.find(request)
        is_cached = cached is not None
        result = cached or _export(request, tools)
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
            format=request.format,
            seconds=perf_counter() - started_s,
            is_cached=is_cached,
            error=result.message if isinstance(result, Failure) else None,
        )
    )
    done.put((request, result))


def _export(request: ExportRequest, tools: ExportTools) -> _Result:
    tools.emit(ExportStarted(model=request.card.name, format=request.format))
    # The primer is fleetrank's own code, used through an entry point.
    is_primer = request == primer_request(request.format)
    out_dir = tools.cache.staging_dir(request)
    try:
        staged = export_in_child(
            request,
            out_dir,
            timeout_s=_TIMEOUT_S,
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
        ),
        inputs_path=str(inputs_path),
        outputs_path=str(outputs_path),
        # Exported from a network just now, so there is an original to compare with.
        is_trusted=True,
        timeout_s=_TIMEOUT_S,
    )


def _failure(kind: ErrorKind, message: str, remedy: str) -> Failure:
    stage = "verify" if kind is ErrorKind.VERIFICATION_FAILED else "export"
    return Failure(kind=kind, message=message, remedy=remedy, is_transient=False, stage=stage)
