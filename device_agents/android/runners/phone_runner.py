"""The contract of a measuring program on a phone; `registry.py` lists its members.

A member plans a command line and reads what the command wrote. It never talks to a phone, so that
kept raw logs can be read again by a better parser.
"""

from dataclasses import dataclass
from typing import Protocol

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.contract.task import Execution, MeasureTask, Options
from fleetrank.device_agents.contract.vocabulary import MemoryMetric, SampleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """One call of a program.

    Attributes:
        argv: `argv[0]` is the program's path on the phone; every item is data, never shell text.
        result_file: path on the phone that the program may write; it is absent when the binary
            does not know the flag or fails, which is no error. `None` when none is asked for.
        log_tag: tag of logcat to clear before and to read afterwards, for programs whose lines go
            there instead of to standard output; `None` for none.
        warmup_runs: how many of the timed runs to set aside, for programs that know no warm-up.
    """

    argv: tuple[str, ...]
    result_file: str | None = None
    log_tag: str | None = None
    warmup_runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What one call left.

    Attributes:
        run: what was asked for decides how the answer is judged.
        exit_code: as the phone's shell gives it: 128 + n for signal n.
        result: bytes of the result file; `None` when there was none.
        logcat: lines of the tag, as `logcat -d -s TAG` prints them.
    """

    run: ToolRun
    exit_code: int
    stdout: str
    stderr: str
    result: bytes | None = None
    logcat: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReading:
    """What the output says; the fields have the meanings of `Measurement`.

    Attributes:
        samples_ns: empty for a program that gives a summary only.
        summary: the program's own statistics, only without samples.
        settings: what the program says it used, sorted by name.
        runtime_version: as the program prints it; most print none.
    """

    sample_kind: SampleKind
    samples_ns: tuple[int, ...] = ()
    summary: ToolSummary | None = None
    load_ns: int | None = None
    first_inference_ns: int | None = None
    warmup_ns: int | None = None
    warmup_runs: int | None = None
    memory_metric: MemoryMetric | None = None
    load_peak_memory_bytes: int | None = None
    run_peak_memory_bytes: int | None = None
    settings: Options = ()
    runtime_version: str | None = None


class PhoneRunner(Protocol):
    """One program. Knows its flags and its text, and imports nothing heavy at its top."""

    tool: str
    """File name of the program, as in `tools.toml`."""
    artifact_suffix: str
    """With its dot. Programs and people tell formats by it."""
    capability: Capability

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says what of this the program cannot do, or `None`; no phone is asked."""
        ...

    def plan_run(
        self, *, tool_path: str, artifact_path: str, run_folder: str, task: MeasureTask
    ) -> ToolRun:
        """Makes the command line of one repeat; all paths are on the phone.

        Affinity is not part of it: the agent puts `taskset MASK` before `argv`.

        Raises:
            UnsupportedError: an option has a value the program cannot be given.
        """
        ...

    def read(self, output: ToolOutput) -> ToolReading:
        """Reads the output of one call, whatever it holds.

        Raises:
            BadArtifactError: the program refuses the file.
            UnsupportedError: the program does not know a flag, an operator or a delegate, or has
                placed less on the delegate than was required.
            OutOfMemoryError: an allocation failed.
            CrashedError: it ended by a signal or said that it failed, for no known reason.
            KilledError: something else killed it; the repeat can be tried again.
            BadOutputError: it ended well and its text holds no result.
        """
        ...
