"""One repeat in a tab: the task that a page gets, its inputs, and what its answer becomes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from fleetrank.device_agents.browser.assets import pinned_versions, version
from fleetrank.device_agents.browser.desk import Assignment, Desk, Tab
from fleetrank.device_agents.browser.tab_messages import (
    LoadedFile,
    TabTimes,
    options_of,
    require_sizes,
    words,
    write_frame,
)
from fleetrank.device_agents.comparison import TOLERANCES, compare_outputs, has_nan, read_outputs
from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts
from fleetrank.device_agents.contract.reply import require_possible
from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import InferTask, MeasureTask, infer_task
from fleetrank.device_agents.errors import (
    AgentError,
    BadArtifactError,
    BadOutputError,
    CrashedError,
    OutOfMemoryError,
    UnfitConditionsError,
    UnsupportedError,
    WrongOutputError,
)
from fleetrank.device_agents.flags import Seen, judge
from fleetrank.device_agents.linux.worker_client import infer_in_worker
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput, specs_of
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.runtimes.runner import default_backend
from fleetrank.foundation.codec import CodecError
from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.formats import format_of, runtime_of
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.temporary import temporary_folder
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Origin, SampleKind, Status

_SEED = 0
"""One, so that this host computes the outputs of a file once."""
MAX_FILE_BYTES = 2**31 - 2**24
"""A page keeps a file in one ArrayBuffer, which ends at 2 GiB."""
ERRORS: Mapping[str, tuple[type[AgentError], str]] = {
    "unsupported": (UnsupportedError, "remove this combination from the sweep"),
    "bad_artifact": (BadArtifactError, "export the model again, or leave it out on this device"),
    "out_of_memory": (OutOfMemoryError, "use a smaller batch or model: a tab has 2 to 4 GiB"),
    "unfit": (UnfitConditionsError, "keep the tab visible and the computer awake"),
    "crashed": (CrashedError, "load the page again; its console shows more"),
}
"""By the word of a page for why it did not measure; and what to do."""
_SAME = (
    "load_ns", "first_inference_ns", "warmup_ns", "warmup_runs", "samples_ns", "stop_reason",
)  # fmt: skip
"""Fields of `TabTimes` that are those of a measurement."""
_SETTINGS = ("adapter", "clock_step_ns", "longest_gap_ns", "runs_per_sample", "threads")
_REASONS = frozenset({"half_width", "max_time", "max_samples"})


@dataclass(slots=True)
class TabRepeat:
    """Measures one task in a tab; every failure is raised as a `FleetError`.

    Attributes:
        bare_runs: time so many samples in a plain loop, without the stop rule; `None` measures.
        reference: the outputs of this host for the same inputs, none if it lacks the runtime;
            `None` before the page has loaded the file.
    """

    desk: Desk
    key_hash: str
    tab: Tab
    task: MeasureTask
    stop_requested: StopRequested
    bare_runs: int | None = None
    reference: tuple[Array, ...] | None = None

    def measure(self) -> Measurement:
        """Gives the task to the tab; the measurement has no times of start and end.

        Raises:
            FleetError: what went wrong, with its remedy.
        """
        task = self.task
        if (reason := _why_not(task)) is not None:
            raise UnsupportedError(reason, "leave this combination out on a browser")
        given = Assignment(task, json.dumps(self._text()), self._inputs_for)
        limit_s = task.limits.timeout_s
        done, outputs = self.desk.ask(self.key_hash, given, limit_s, self.stop_requested)
        if done.error is not None:
            kind, remedy = ERRORS.get(done.error.kind, ERRORS["crashed"])
            raise kind(f"in the tab: {words(done.error.message)}", remedy)
        if done.times is None:
            raise BadOutputError("the tab sent no times", "load the page again")
        return self._measurement(done.times, outputs)

    def _text(self) -> dict[str, object]:
        execution = self.task.execution
        return {
            "task_id": self.task.task_id,
            "version": version(),
            "runtime": str(execution.runtime),
            "backend": execution.backend,
            "threads": execution.threads,
            "sha256": self.task.artifact_sha256,
            "policy": asdict(self.task.policy),
            "bare_runs": self.bare_runs,
            "litert_version": pinned_versions()["@litertjs/core"],
        }

    def _inputs_for(self, loaded: LoadedFile) -> bytes:
        """Makes the inputs as the worker of a host does, and what this host computes of them."""
        require_sizes(loaded.inputs)
        found = [
            FoundInput(name=one.name, sizes=one.shape, dtype=one.dtype) for one in loaded.inputs
        ]
        specs, execution = specs_of(found, self.task.execution), self.task.execution
        # In the usual runtime of its format, and equal for all repeats.
        runtime = runtime_of(format_of(execution.runtime))
        here = replace(execution, runtime=runtime, backend=default_backend(runtime), threads=1)
        task = replace(infer_task(self.task, Path(), Path()), task_id="reference", execution=here)
        self.reference = _outputs_here(task, specs)
        return write_frame([one.name for one in found], make_inputs(specs, _SEED))

    def _measurement(self, times: TabTimes, outputs: Sequence[Array]) -> Measurement:
        task = self.task
        alike = self._compared(outputs)
        seen = Seen(
            samples_ns=times.samples_ns,
            is_warmup_stable=times.is_warmup_stable,
            observed_ns=sum(times.samples_ns) * times.runs_per_sample,
            has_nan=has_nan(outputs),
        )
        settings = {
            "agent": self.tab.facts.agent,
            "is_isolated": self.tab.facts.is_isolated,
            "max_relative_error": alike.max_relative_error,
            **{name: getattr(times, name) for name in _SETTINGS},
        }
        is_single = times.runs_per_sample == 1
        found = Measurement(
            task_id=task.task_id,
            status=Status.OK,
            origin=Origin.MEASURED,
            sample_kind=SampleKind.PER_INFERENCE if is_single else SampleKind.THROUGHPUT_DERIVED,
            snr_db=alike.snr_db,
            top1_agreement=alike.top1_agreement,
            worker=WorkerFacts(runtime_version=words(times.version), settings=options_of(settings)),
            flags=(*judge(seen, task.policy), Flag.SELF_REPORTED),
            **{name: getattr(times, name) for name in _SAME},
        )
        try:
            require_possible(found, task.limits.timeout_s, self._problems(times))
        except CodecError as error:
            message = f"the page says impossible things: {error.message}"
            raise BadOutputError(message, "load the page again in the browser") from error
        return found

    def _compared(self, outputs: Sequence[Array]) -> OutputComparison:
        """Beside the outputs of this host; no error if it has none, or none that are finite.

        Raises:
            BadOutputError: the page asked for no inputs, so it ran nothing.
            WrongOutputError: the file computes something else in the tab.
        """
        if self.reference is None:
            raise BadOutputError("the page asked for no inputs", "load the page again")
        if not self.reference or not all(np.isfinite(one).all() for one in self.reference):
            return OutputComparison(max_relative_error=None, is_equal=True)
        tolerance = TOLERANCES.get(self.task.execution.precision)
        alike = compare_outputs(self.reference, outputs, tolerance)
        if not alike.is_equal:
            raise WrongOutputError(
                f"the file computes something else in the tab than here: {alike.reason}",
                "try another version of the browser, or another runtime",
            )
        return alike

    def _problems(self, times: TabTimes) -> Iterator[str]:
        asked, most = self.task.execution.threads, self.task.policy.max_samples
        if times.threads != asked:
            yield f"{times.threads} threads ran, not {asked}"
        if len(times.samples_ns) > most:
            yield f"{len(times.samples_ns)} samples are more than {most}"
        if times.stop_reason not in _REASONS:
            yield f"it stopped for an unknown reason: {words(times.stop_reason)}"
        if not 0 < times.runs_per_sample < 2**31 or not 0 <= times.clock_step_ns < 10**9:
            yield "its clock or its number of runs is impossible"


def _why_not(task: MeasureTask) -> str | None:
    if Path(task.artifact_path).stat().st_size > MAX_FILE_BYTES:
        return "the file has more than 2 GiB, which no tab can load"
    if task.weights_path is not None:
        return "the file has its weights beside it, which no tab can read"
    return "a tab measures no sustained throughput" if task.policy.min_time_s > 0 else None


@lru_cache(maxsize=64)
def _outputs_here(task: InferTask, specs: tuple[ModelInput, ...]) -> tuple[Array, ...]:
    """What this host computes, once for a file and its inputs; empty if it lacks the runtime.

    Raises:
        BadOutputError: it cannot run the file with these inputs, which the page states.
    """
    arrays = make_inputs(specs, _SEED)
    # One case: a whole input.
    cases = {f"input_{index}": array[np.newaxis] for index, array in enumerate(arrays)}
    with temporary_folder("reference") as folder:
        given, found = folder / "inputs.npz", folder / "outputs.npz"
        np.savez(given, allow_pickle=False, **cases)
        failure = infer_in_worker(infer_task(task, given, found))
        if failure is None:
            return tuple(read_outputs(found))
    if failure.kind is ErrorKind.MISSING_LIBRARY:
        return ()
    raise BadOutputError(
        f"this host cannot run the file with the inputs of the page: {failure.message}",
        failure.remedy,
    )
