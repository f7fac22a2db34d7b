"""The kind `interpreter`: ONNX files on this host, in the ONNX Runtime of another Python.

That Python needs `onnxruntime` and nothing of fleetrank. So one sweep compares two versions.
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from fleetrank.device_agents.contract.agent import (
    DeviceFacts,
    StopRequested,
    never_stop,
    read_fields,
)
from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.kind import DeviceKind, HostShare, Pinning, Traits
from fleetrank.device_agents.contract.measurement import (
    Failure,
    Measurement,
    WorkerFacts,
    failed,
    utc_now,
)
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.errors import (
    BadOutputError,
    CrashedError,
    PermanentError,
    StoppedError,
    TimedOutError,
    UnsupportedError,
)
from fleetrank.foundation.codec import from_json
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Origin, Precision, Runtime, Status, Tier

SCRIPT = Path(__file__).with_name("there.py")
T = TypeVar("T")
_POLL_S = 0.1
_PROBE_S = 60.0
_MARGIN_S = 5.0
_CAPABILITY = Capability(
    backends=("cpu",), precisions=frozenset({Precision.FP32, Precision.FP16, Precision.INT8})
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterOptions:
    """The options in a device file: the path of the other Python."""

    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What the other Python says of itself."""

    python: str
    onnxruntime: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What it measured."""

    versions: Versions
    load_ns: int
    first_inference_ns: int
    warmup_runs: int
    samples_ns: tuple[int, ...]


class InterpreterAgent:
    """Starts the other Python once for each repeat."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        self._python = read_fields(InterpreterOptions, "interpreter", options).python

    def probe(self) -> DeviceFacts:
        """Describes the processor, and the versions in the other Python."""
        found = self._ask(Versions, {"do": "describe"}, _PROBE_S, never_stop)
        return DeviceFacts(
            device_model=f"{platform.node()} with onnxruntime {found.onnxruntime}",
            tier=Tier.CPU,
            origin=Origin.MEASURED,
            os=platform.platform(terse=True),
            arch=platform.machine(),
            logical_cores=os.cpu_count(),
            extra=(("onnxruntime", found.onnxruntime), ("python", found.python)),
        )

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why the execution is not possible, or `None`."""
        if execution.runtime is not Runtime.ONNX:
            return "an interpreter runs onnx only"
        if execution.inputs or execution.options:
            return "an interpreter takes no stated inputs and no options"
        return _CAPABILITY.why_unsupported(execution, "onnx", "in an interpreter")

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time of `measure`."""
        return task.limits.timeout_s + _MARGIN_S

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat in a fresh process of the other Python."""
        started = utc_now()
        order = {
            "do": "measure",
            "path": task.artifact_path,
            "batch": task.execution.batch,
            "threads": task.execution.threads,
            "affinity": task.execution.affinity,
            "seed": task.seed,
            "policy": asdict(task.policy),
        }
        try:
            if (why := self.why_unsupported(task.execution)) is not None:
                raise UnsupportedError(why, "change the cell's execution")
            found = self._ask(Times, order, task.limits.timeout_s, stop_requested)
        except FleetError as error:
            return failed(task.task_id, failure_from_error(error, "measure"), Origin.MEASURED)
        return Measurement(
            task_id=task.task_id,
            status=Status.OK,
            origin=Origin.MEASURED,
            load_ns=found.load_ns,
            first_inference_ns=found.first_inference_ns,
            warmup_runs=found.warmup_runs,
            samples_ns=found.samples_ns,
            worker=WorkerFacts(
                runtime_version=found.versions.onnxruntime, python_version=found.versions.python
            ),
            started_utc=started,
            finished_utc=utc_now(),
        )

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Evaluations are for fleetrank's own runtimes."""
        error = UnsupportedError("an interpreter only measures", "evaluate on local-cpu")
        return failure_from_error(error, "infer")

    def _ask(
        self, answer: type[T], order: object, limit_s: float, stop_requested: StopRequested
    ) -> T:
        """Runs the script and returns its answer; the process ends with the time or the stop."""
        try:
            # -I: neither the folder that the user is in nor PYTHONPATH can replace a library.
            child = subprocess.Popen(
                [self._python, "-I", str(SCRIPT), json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise PermanentError(
                f"{self._python} cannot be started: {error.strerror}", "correct the option `python`"
            ) from error
        with child:
            try:
                out, errors = _output(child, limit_s, stop_requested)
            finally:
                child.kill()
        if child.returncode != 0:
            said = (errors.strip().splitlines() or ["no output"])[-1]
            raise CrashedError(f"{self._python}: {said[:300]}", "pip install onnxruntime there")
        lines = out.splitlines() or [""]
        try:
            return from_json(answer, lines[-1])
        except FleetError as error:
            raise BadOutputError(f"{self._python}: {error.message}", "run it again") from error


def _output(
    child: "subprocess.Popen[str]", limit_s: float, stop_requested: StopRequested
) -> tuple[str, str]:
    end_s = time.monotonic() + limit_s
    while True:
        try:
            return child.communicate(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            if stop_requested():
                raise StoppedError("stopped on request", "resume the sweep") from None
            if time.monotonic() > end_s:
                raise TimedOutError(
                    f"no answer after {limit_s:g} s", "raise the time limit of the sweep"
                ) from None


KIND = DeviceKind(
    create_agent=InterpreterAgent,
    traits_of=lambda _options: Traits(
        share=HostShare.ALONE, needs_quiet=True, pinning=Pinning.HOST_CORES
    ),
    default_backend=lambda _runtime: "cpu",
    is_probed_when_added=True,
)
