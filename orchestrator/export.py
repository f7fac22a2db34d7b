"""Exports and verifies every file that a sweep needs, before any measurement."""

import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, sleep

import psutil

from fleetrank.device_agents.comparison import compare_files
from fleetrank.device_agents.contract.kind import Kind
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import Execution, InferTask
from fleetrank.device_agents.registry import HOST_CPU, create_agent, load_kind
from fleetrank.foundation.comparison import Comparison
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.files import file_sha256
from fleetrank.foundation.formats import runtime_of
from fleetrank.foundation.lease import Use, host_lease, is_host_wanted
from fleetrank.foundation.vocabulary import ErrorKind, Format, Precision
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import Artifact, ExportRequest, StagedExport
from fleetrank.models.export.process import (
    ExportChild,
    ExportOrder,
    peak_memory_estimate_bytes,
    usable_cores,
)
from fleetrank.models.networks.weights import canary_request, primer_request
from fleetrank.orchestrator.dispatch.controller import StopSwitch
from fleetrank.orchestrator.dispatch.decide.state import Exports
from fleetrank.orchestrator.errors import NothingToDoError
from fleetrank.orchestrator.plan.estimate import export_limit_s
from fleetrank.orchestrator.progress import (
    STOPPING,
    ExportFinished,
    ExportStarted,
    Notice,
    PhaseStarted,
    Subscriber,
)
from fleetrank.orchestrator.workspace.workspace import Workspace

# Exports and verifies one file, or finds it in the cache.


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
) -> Comparison | Failure | None:
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
        timeout_s=export_limit_s(request),
    )


def _failure(kind: ErrorKind, message: str, remedy: str) -> Failure:
    stage = "verify" if kind is ErrorKind.VERIFICATION_FAILED else "export"
    return Failure(kind=kind, message=message, remedy=remedy, is_transient=False, stage=stage)


# Runs exports side by side as memory and cores allow, those of one format after one another.

_POLL_S = 0.25
"""Longest sleep between two checks of the stop switch."""
_AWAY_S = 1.0
"""A repeat that waits for the host reports it every few seconds, and is out of the queue for half a
second then."""


def export_all(
    requests: Sequence[ExportRequest], tools: ExportTools
) -> tuple[dict[ExportRequest, Result], bool]:
    """The result of each request, and whether all were handled before a stop was requested.

    This process holds the host's lease meanwhile. If others wait for it, no further export starts,
    and they go first when the running ones have ended.
    """
    if requests:
        tools.emit(PhaseStarted(name="exporting", n_steps=len(requests)))
    lines = _Lines(requests, tools)
    results: dict[ExportRequest, Result] = {}
    try:
        while lines.has_work and not tools.switch.is_stopping:
            with tools.turn() as is_held:
                if is_held:
                    results |= _one_turn(lines)
            if lines.has_work and not tools.switch.is_stopping:
                sleep(_AWAY_S)
        return results, not lines.has_work
    finally:
        lines.end()


def _one_turn(lines: "_Lines") -> dict[ExportRequest, Result]:
    """The results until none is left, a stop was requested, or others want the host."""
    results: dict[ExportRequest, Result] = {}
    lines.begin_turn()
    while lines.start_what_fits():
        if (finished := lines.wait()) is not None:
            results |= finished
    return results


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


class _Line(threading.Thread):
    """Exports one file after another in one child process.

    A daemon: an immediate stop does not wait for it, and its child ends too.

    Attributes:
        orders: the next request; `None` ends it.
    """

    def __init__(self, tools: ExportTools, done: "_Done") -> None:
        super().__init__(daemon=True)
        self.orders: queue.SimpleQueue[ExportRequest | None] = queue.SimpleQueue()
        self._tools, self._done = tools, done

    def run(self) -> None:
        """Puts a result into the queue for each order."""
        with ExportChild() as child:
            while (request := self.orders.get()) is not None:
                self._done.put((self, request, obtain(request, self._tools, child)))


_Done = queue.SimpleQueue[tuple[_Line, ExportRequest, Result]]


class _Lines:
    """The requests that wait, those that run, and the threads that handle them."""

    def __init__(self, requests: Sequence[ExportRequest], tools: ExportTools) -> None:
        self._tools = tools
        self._pending = list(requests)
        self._reserved_bytes: dict[ExportRequest, int] = {}
        self._lines: list[_Line] = []
        self._done: _Done = queue.SimpleQueue()
        self._is_closed = self._is_announced = False

    @property
    def is_busy(self) -> bool:
        return bool(self._reserved_bytes)

    @property
    def has_work(self) -> bool:
        return bool(self._pending) or self.is_busy

    def begin_turn(self) -> None:
        """Requests may start again."""
        self._is_closed = False

    def start_what_fits(self) -> bool:
        """Starts requests in their order, each in its own line; false if this turn is over."""
        if self._tools.switch.is_stopping and not self._is_announced:
            self._is_announced = True
            self._tools.emit(Notice(level="info", message=STOPPING))
        self._is_closed |= self._tools.switch.is_stopping
        while self._pending and self._order(None, self._pending[0], held_bytes=0):
            pass
        return self.is_busy and not self._tools.switch.is_now

    def wait(self) -> dict[ExportRequest, Result] | None:
        """The next result, or `None` after a moment; its line takes a request of its format.

        Looks whether others want the host: not before, so that each turn exports something.
        """
        try:
            line, finished, result = self._done.get(timeout=_POLL_S)
        except queue.Empty:
            return None
        finally:
            # It is kept, because a process that waits is out of the queue from time to time.
            self._is_closed |= is_host_wanted() or self._tools.switch.is_stopping
        held_bytes = self._reserved_bytes.pop(finished)
        follower = next((one for one in self._pending if one.format == finished.format), None)
        if follower is None or not self._order(line, follower, held_bytes):
            line.orders.put(None)
        return {finished: result}

    def end(self) -> None:
        """Lets each line end after what it does now."""
        for line in self._lines:
            line.orders.put(None)

    def _order(self, line: _Line | None, request: ExportRequest, held_bytes: int) -> bool:
        """Gives the request to the line, or to a new one; `False` if it must not start now.

        A process keeps a part of the memory that its largest export needed.
        """
        need_bytes = max(held_bytes, peak_memory_estimate_bytes(request))
        if self._is_closed or not may_start(
            need_bytes,
            tuple(self._reserved_bytes.values()),
            available_bytes=psutil.virtual_memory().available,
            cores=usable_cores(),
        ):
            return False
        self._pending.remove(request)
        self._reserved_bytes[request] = need_bytes
        if line is None:
            line = _Line(self._tools, self._done)
            self._lines.append(line)
            line.start()
        line.orders.put(request)
        return True


def build_artifacts(
    requests: Iterable[ExportRequest], primed: Iterable[Format], tools: ExportTools
) -> Exports:
    """Finds or exports the file of each distinct request, in parallel as memory allows.

    Measuring starts after it returns, so that no export disturbs a measurement. Those of other
    sweeps on this host take turns with it, between two models.

    Args:
        requests: files to measure; equal ones are exported once.
        primed: formats that also need a primer.
        tools: the tools to use.
    """
    wanted = tuple(dict.fromkeys(requests))
    primers = {primer_request(format_): format_ for format_ in sorted(set(primed))}
    results, is_complete = export_all((*primers, *wanted), tools)
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
    from fleetrank.orchestrator.progress import PlainLines

    tools = ExportTools(
        cache=cache,
        infer=create_agent(HOST_CPU, {}).infer,
        emit=PlainLines(sys.stderr),
        switch=StopSwitch(),
        purpose="the export of the canary model",
    )
    exports = build_artifacts([request], (), tools)
    if request in exports.failures:
        failure = exports.failures[request]
        raise NothingToDoError(
            f"the canary model is not available: {failure.message}", failure.remedy
        )
    return exports.artifacts[request]
