"""What devices, their programs and the kernel print: hostile texts for `device_parsers`.

A parser whose answer has to have properties has a check of its own here.
"""

import math
from collections.abc import Callable
from typing import Any

from device_parsers import DATA, PROBES, TOOLS, Parser, encode_result
from hypothesis import strategies as st
from mutation import HOSTILE, arbitrary, lines, mutated, one_of
from target import QUICK_SHARE, Target

from fleetrank.device_agents.android.adb_server import ShellResult
from fleetrank.device_agents.android.phone import split_sections
from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.programs.benchmark_text import read_result, read_text
from fleetrank.device_agents.android.programs.executor_runner import ExecutorRunner
from fleetrank.device_agents.android.programs.perf_test import PerfTest
from fleetrank.device_agents.android.programs.phone_program import (
    PhoneProgram,
    ProgramCall,
    ProgramOutput,
)
from fleetrank.device_agents.android.state import fitness
from fleetrank.device_agents.android.state.fitness import conditions_of_sections, to_conditions
from fleetrank.device_agents.android.state.identity import (
    PROPERTIES,
    facts_of_sections,
    to_device_facts,
    why_refused,
)
from fleetrank.device_agents.android.state.power_text import (
    RunClocks,
    clusters_of,
    parse_cores,
    parse_topology,
)
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.errors import AgentError
from fleetrank.foundation.codec import to_json

SEPARATOR = b"\n=====\n"
BENCHMARK, EXECUTOR, PERF = (
    tuple(path.read_bytes() for path in sorted((DATA / name).glob("*.txt")))
    for name in ("benchmark_model", "executor_runner", "perf_test")
)
RESULTS = (
    encode_result(
        {
            "latency_metrics": {"avg_ms": 1.5, "median_ms": 1.4, "p95_ms": 2.0, "init_ms": 3.0,
                                "first_inference_ms": 4.0, "average_warm_up_ms": 2.0},
            "memory_metrics": {"init_footprint_kb": 100, "overall_footprint_kb": 200},
            "misc_metrics": {"num_runs": 50, "num_warmup_runs": 5},
        }
    ),
)  # fmt: skip
TEXTS = PROBES | TOOLS
MARK = "m4rk"
PROBE = b"".join(
    f"\n{MARK} {name}\n{content}".encode()
    for name, content in (
        *((name, "x") for name in PROPERTIES), ("gpu", "GLES: ARM, Mali, 3.2"),
        ("taskset", "/bin/taskset"), ("boot", "0" * 36),
        *((section, TEXTS[text][1]) for section, text in (
            ("cores", "cores"), ("battery", "battery"), ("memory", "available"),
            ("storage", "df"), ("thermal", "thermal"), ("power", "power"), ("load", "load"),
        )),
    )
)  # fmt: skip
LABELS = (
    b"level: ", b"temperature: ", b"count=", b"avg=", b"p95=", b"ms\n", b"Iteration ", b" of ",
    b"Inference (avg): ", b"e+06", b"\r\n", b"MB): ", b": ", b"=", b"%", b" kB\n",
    b"Replacing 1 out of 2 node(s) with delegate (",
)  # fmt: skip


def _within(value: float | None, least: float, most: float) -> bool:
    return value is None or least <= value <= most


def _is_stored(reading: Measurement) -> bool:
    """Whole, not negative, of a kind that JSON has; and a latency, which no program lacks."""
    to_json(reading)
    times = (reading.load_ns, reading.first_inference_ns, reading.warmup_ns)
    return (
        all(sample > 0 for sample in reading.samples_ns)
        and all(_within(value, 0, math.inf) for value in times)
        and bool(reading.samples_ns or reading.profile or reading.summary)
        and (reading.summary is None or reading.summary.latency_ns > 0)
    )


HOLDS: dict[str, Callable[[Any], bool]] = {
    "df": lambda it: _within(it, 0, math.inf),
    "battery": lambda it: (
        it is None or (_within(it.percent, 0, 100) and _within(it.temp_c, -40, 150))
    ),
    "electric": lambda it: (
        _within(it.voltage_mv, 2500, 10_000) and _within(it.current, 0, 20_000_000)
    ),
    "load": lambda it: it is None or math.isfinite(it),
    "number": lambda it: it is None or math.isfinite(it),
    "cpu list": lambda it: list(it) == sorted(set(it)),
    "devices": lambda it: all(one.address for one in it),
    "delegation": lambda it: _within(it.node_share, 0, 1),
    "benchmark text": _is_stored,
    "executor text": _is_stored,
    "perf text": _is_stored,
}
"""What holds of an answer of a parser of the registry."""
MORE = {"benchmark text": BENCHMARK, "delegation": BENCHMARK, "executor text": EXECUTOR}
"""Further texts of a parser."""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _of_text(name: str, parser: Parser) -> Callable[[bytes], object]:
    def check(data: bytes) -> object:
        found = parser(_text(data))
        assert name not in HOLDS or HOLDS[name](found), f"what holds of {name} does not: {found}"
        return found

    return check


def cores(data: bytes) -> object:
    text = _text(data)
    found = parse_cores(text)
    clocks = RunClocks(looks=(found, found), registered_cap_mhz=1000.0)
    share = clocks.registered_share
    assert share is None or (math.isfinite(share) and share > 0)
    assert clocks.lowest_fall in (None, 1.0), "nothing fell between two equal looks"
    assert all(one.max_khz is None or one.max_khz <= 20_000_000 for one in found), "above 20 GHz"
    numbers = [number for one in clusters_of(found, parse_topology(text)) for number in one.cores]
    assert sorted(numbers) == [one.number for one in found], "a core in no cluster, or in two"
    return found, numbers, share


def probe(data: bytes) -> object:
    sections = split_sections(_text(data), MARK)
    facts = facts_of_sections(sections, has_exit_codes=True)
    stored = to_device_facts(facts, adb_version="1")
    to_json(stored)
    conditions = to_conditions(conditions_of_sections(sections))
    to_json(conditions)
    return facts, stored, why_refused(facts), conditions


def boot(data: bytes) -> object:
    """What a phone that starts says decides how long a host waits for it."""

    class Phone:
        def connect(self) -> None: ...

        def shell(self, *_script: str, **_how: object) -> ShellResult:
            return ShellResult(exit_code=0, stdout=_text(data), stderr="")

    found = fitness._uptime_s(Phone(), lambda: False)  # type: ignore[arg-type]
    wait_s = max(0.0, fitness.SETTLE_S - found) if found is not None else 0.0
    assert 0 <= wait_s <= fitness.SETTLE_S, f"the host waits {wait_s:g} s"
    return found


def benchmark_text(data: bytes) -> object:
    found = read_text(_text(data))
    assert found.summary.p95_ns is None or found.summary.p95_ns >= found.summary.latency_ns
    assert found.summary.latency_ns <= 1000 * found.summary.mean_ns
    return found


def _output_of(data: bytes, *argv: str, exit_code: int = 0) -> ProgramOutput:
    """An output whose second part is the result file, and the log."""
    text, _, rest = data.partition(SEPARATOR)
    run = ProgramCall(argv=("/t/x", *argv), result_file="/r", log_tag="x", warmup_runs=1)
    return ProgramOutput(
        run=run, exit_code=exit_code, stdout=_text(text), stderr="", result=rest or None,
        logcat=_text(rest),
    )  # fmt: skip


def _of_program(program: PhoneProgram, *argv: str) -> Callable[[bytes], object]:
    def check(data: bytes) -> object:
        reading = program.read(_output_of(data, *argv))
        assert _is_stored(reading)
        return reading

    return check


def failed_program(data: bytes) -> object:
    """A program that ended badly is a typed error, whatever its last words."""
    exit_code = data[0] if data else 1
    for runner in (BenchmarkModel(), ExecutorRunner(), PerfTest()):
        try:
            reading: object = runner.read(_output_of(data[1:], exit_code=exit_code or 1))
        except AgentError as error:
            reading = error
        assert isinstance(reading, AgentError), "a failed program has a reading"
        assert len(str(reading)) < 2000
    return exit_code


def _target(
    check: Callable[[bytes], object], samples: tuple[bytes, ...], share: float = 1.0, name: str = ""
) -> Target:
    numbers = one_of((*HOSTILE, "1", "41.2", "1e3", "-5", "100", "4000000000"))
    known = [line for sample in samples for line in sample.decode("utf-8", "replace").split("\n")]
    # Lines of real output, each maybe with a figure of another kind behind it.
    mixed = lines(st.one_of(one_of(known), st.builds("{}{}".format, one_of(known), numbers)))
    inputs = st.one_of(mutated(samples, LABELS), mutated(samples, LABELS), mixed, arbitrary())
    return Target(check, inputs, (AgentError,), share, name)


def _with_results(texts: tuple[bytes, ...], results: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return (*texts, *(text + SEPARATOR + result for text in texts for result in results))


_CORES, _TOPOLOGY = (TEXTS[name][1].encode() for name in ("cores", "topology"))
TARGETS = (
    _target(cores, (_CORES, _CORES + _TOPOLOGY)),
    _target(probe, (PROBE,)),
    _target(boot, (TEXTS["uptime"][1].encode(), b"1\n3.5 1\n", b"0\n1 1\n"), 0.5),
    _target(benchmark_text, BENCHMARK),
    _target(read_result, RESULTS, name="benchmark_result"),
    _target(
        _of_program(BenchmarkModel(), "--use_gpu=true"),
        _with_results(BENCHMARK, RESULTS),
        name="benchmark_model",
    ),
    _target(
        _of_program(ExecutorRunner()), _with_results(EXECUTOR, EXECUTOR), name="executor_runner"
    ),
    _target(
        _of_program(PerfTest()),
        _with_results(PERF, (TEXTS["perf file"][1].encode(),)),
        name="perf_test",
    ),
    _target(failed_program, (*BENCHMARK, *EXECUTOR, b"\x8bSegmentation fault")),
    *(
        _target(
            _of_text(name, parser),
            (text.encode(), *MORE.get(name, ())),
            1.0 if name in HOLDS else QUICK_SHARE,
            f"parser_{name.replace(' ', '_')}",
        )
        for name, (parser, text) in TEXTS.items()
    ),
)
