"""ONNX Runtime's `onnxruntime_perf_test`: ONNX files; its result file has every inference.

No vendor distributes it for Android: a user builds it and gives its path. This project has not run
it on a phone. Its peak working set is a total, not a growth, so memory is not read from it.
"""

import re
from dataclasses import replace

from fleetrank.device_agents.android.programs.phone_program import (
    NUMBER,
    READ,
    PhoneProgram,
    ProgramCall,
    ProgramOutput,
    Wording,
    all_text,
    not_a_result,
    per_inference,
    readable,
    reported,
    to_latency_ns,
    to_ns,
)
from fleetrank.device_agents.contract.agent import Capability
from fleetrank.device_agents.contract.measurement import Measurement, ToolSummary
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.device_output import lines_of, refuse_impossible, refuse_unlike_counts
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import NS_PER_MS, NS_PER_S, SampleKind, Statistic

RESULT_FILE = "result.csv"

_SESSION = re.compile(rf"Session creation time cost: ({NUMBER}) s\b")
_FIRST = re.compile(rf"First inference time cost: ({NUMBER}) ms\b")
_MEAN = re.compile(rf"Average inference time cost(?: total)?: ({NUMBER}) ms\b")
_COUNT = re.compile(r"Total inference requests: ([0-9]{1,9})\b")
_LOWEST = re.compile(rf"\bMin Latency: ({NUMBER}) s\b")
_HIGHEST = re.compile(rf"\bMax Latency: ({NUMBER}) s\b")
_PERCENTILE = re.compile(rf"\bP(50|90|95|99) Latency: ({NUMBER}) s\b")
_ROW = re.compile(rf"({NUMBER}),{NUMBER},{NUMBER},([0-9]{{1,9}})")
"""The end of a row: seconds, working set, CPU use, index. A model's name may contain commas."""


WORDING = Wording(
    unsupported=(
        "is not supported in this build", "NOT_IMPLEMENTED",
        "Could not find an implementation", "is not a registered function/op",
        "No Op registered for", "No opset import for domain", "is under development",
        "nknown command line flag", "perf_test [options",
    ),
    bad_artifact=(
        "Protobuf parsing failed", "INVALID_PROTOBUF", "INVALID_GRAPH", "NO_SUCHFILE",
        "Load model from", "INVALID_ARGUMENT",
    ),
)  # fmt: skip
"""How ONNX Runtime reports failures, in every program."""


class PerfTest(PhoneProgram):
    """Backends: `cpu`, `xnnpack`, `nnapi`; option `spinning` (default true).

    One untimed inference comes first; the program reports it in whole milliseconds. The policy's
    warm-up runs are the first timed runs and are not counted. The only time limit is the task's
    limit.
    """

    name = "onnxruntime_perf_test"
    artifact_suffix = ".onnx"
    capability = Capability(
        backends=("cpu", "xnnpack", "nnapi"), option_names=frozenset({"spinning"})
    )
    wording = WORDING

    def why_not_stated(self, execution: Execution) -> str | None:
        """Says which value the program cannot be given, or `None`."""
        spinning = dict(execution.options).get("spinning", True)
        if not isinstance(spinning, bool):
            return f"option spinning is {spinning!r}"
        return next((why for one in execution.inputs if (why := _why_not_zero(one))), None)

    def why_not_profiled(self, execution: Execution) -> str | None:  # noqa: ARG002
        """Always: the name of the file that its flag `-p` writes is not known before the run."""
        return (
            "fleetrank does not read the profile that onnxruntime_perf_test writes on a phone: "
            "profile the file on a host, or profile tflite on the phone"
        )

    def call(
        self, program_path: str, artifact_path: str, run_folder: str, task: MeasureTask
    ) -> ProgramCall:
        """Builds the command line."""
        execution, policy = task.execution, task.policy
        is_spinning = dict(execution.options).get("spinning", True)
        result_file = f"{run_folder}/{RESULT_FILE}"
        argv = (
            program_path,
            *("-e", execution.backend),
            *("-x", str(execution.threads)),
            *("-y", "1"),
            *("-m", "times"),
            *("-r", str(policy.min_warmup_runs + policy.min_runs)),
            # Zeros as inputs: otherwise the program looks for test data beside the model.
            "-I",
            # Between the runs: users of the library get the threads' own spinning.
            *(() if is_spinning else ("-D",)),
            artifact_path,
            result_file,
        )
        return ProgramCall(argv=argv, result_file=result_file, warmup_runs=policy.min_warmup_runs)

    def result(self, output: ProgramOutput) -> Measurement:
        """Reads the result from the program's output."""
        text = all_text(readable(output))
        load = _SESSION.search(text)
        first = _FIRST.search(text)
        load_ns = to_ns(load[1], NS_PER_S, "the session's creation") if load else None
        # Whole milliseconds, rounded down: 0 means less than 1 ms.
        first_ns = to_ns(first[1], NS_PER_MS, "the first inference") or None if first else None
        reading, source = READ, "text"
        if output.result:
            times_ns = _times(output.result.decode("utf-8", "replace"))
            if count := _COUNT.search(text):
                refuse_unlike_counts(len(times_ns), int(count[1]))
            reading, source = per_inference(times_ns, output.run.warmup_runs), "result_file"
        else:
            reading = replace(READ, sample_kind=SampleKind.TOOL_SUMMARY, summary=_summary(text))
        return replace(
            reading,
            load_ns=load_ns,
            first_inference_ns=first_ns,
            worker=reported({"read_from": source}),
        )


def _why_not_zero(one: ModelInput) -> str | None:
    """Says why an input cannot be what the program makes with `-I` and no seed.

    Source: onnxruntime/test/perftest/ort_test_session.cc (1.20): every value is 0.
    """
    low, high = one.values.low, one.values.high
    if one.values.path is None and (low is None or high is None or low <= 0 <= high):
        return None
    return f"onnxruntime_perf_test sets every input to 0, which the card excludes for {one.name!r}"


def _times(text: str) -> tuple[int, ...]:
    """The samples of the last run: the program appends to the file, and each run counts from 0."""
    times_ns: list[int] = []
    for line in lines_of(text):
        if not line.strip():
            break  # statistics follow
        found = _ROW.fullmatch(line[_row_start(line) :])
        if found is None:
            raise not_a_result(f"a row of the result file is {line[:80]!r}")
        if found[2] == "0":
            times_ns.clear()
        if int(found[2]) != len(times_ns):
            raise not_a_result(f"row {len(times_ns)} of the result file is missing")
        times_ns.append(to_latency_ns(found[1], NS_PER_S, "a sample"))
    return tuple(times_ns)


def _row_start(line: str) -> int:
    """The position where the last four fields begin."""
    return len(line) - len(",".join(line.rsplit(",", 4)[1:]))


def _summary(text: str) -> ToolSummary:
    """Reads the printed statistics of a build that wrote no result file; they include warm-up.

    Percentiles are in seconds, the mean in milliseconds. A percentile is the sample at index
    floor(n * p / 100), not interpolated.
    """
    mean, count = _MEAN.search(text), _COUNT.search(text)
    shown = dict(_PERCENTILE.findall(text))
    if mean is None or count is None or "50" not in shown:
        raise not_a_result("mean, count or median are not printed")
    p50, p90, p95, p99 = (
        to_latency_ns(shown[name], NS_PER_S, f"P{name}") if name in shown else None
        for name in ("50", "90", "95", "99")
    )
    if p50 is None or count[1] == "0":
        raise not_a_result("no run was timed")
    summary = ToolSummary(
        count=int(count[1]),
        latency_ns=p50,
        statistic=Statistic.MEDIAN,
        mean_ns=to_latency_ns(mean[1], NS_PER_MS, "the mean"),
        p90_ns=p90,
        p95_ns=p95,
        p99_ns=p99,
    )
    low, high = _LOWEST.search(text), _HIGHEST.search(text)
    refuse_impossible(
        summary,
        min_ns=to_ns(low[1], NS_PER_S, "the minimum") if low else None,
        max_ns=to_ns(high[1], NS_PER_S, "the maximum") if high else None,
    )
    return summary
