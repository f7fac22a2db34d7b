"""What devices, their programs and the kernel print: hostile texts for `device_parsers`.

A parser whose answer has to have properties has a check of its own here.
"""

import math
from collections.abc import Callable

from device_parsers import DATA, PROBES, TOOLS, Parser, encode_result
from hypothesis import strategies as st
from mutation import HOSTILE, arbitrary, lines, mutated, one_of
from target import QUICK_SHARE, Target

from fleetrank.device_agents.android.adb_server import ShellResult
from fleetrank.device_agents.android.phone import split_sections
from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.programs.benchmark_text import (
    read_delegation,
    read_result,
    read_text,
)
from fleetrank.device_agents.android.programs.executor_runner import ExecutorRunner
from fleetrank.device_agents.android.programs.perf_test import PerfTest
from fleetrank.device_agents.android.programs.phone_program import ProgramCall, ProgramOutput
from fleetrank.device_agents.android.state import fitness
from fleetrank.device_agents.android.state.fitness import conditions_of_sections, to_conditions
from fleetrank.device_agents.android.state.identity import (
    PROPERTIES,
    facts_of_sections,
    free_bytes,
    to_device_facts,
    why_refused,
)
from fleetrank.device_agents.android.state.power_text import (
    RunClocks,
    clusters_of,
    parse_battery,
    parse_cores,
    parse_is_screen_on,
    parse_look,
    parse_thermal,
    parse_topology,
)
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.errors import AgentError
from fleetrank.device_agents.host.conditions import (
    parse_available_memory,
    parse_cpuinfo_mhz,
    parse_load,
    parse_number,
    parse_oom_kills,
    parse_stat,
)
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


def _samples(*names: str) -> tuple[bytes, ...]:
    """What the registry has for parsers."""
    return tuple(TEXTS[name][1].encode() for name in names)


MARK = "m4rk"
PROBE = b"".join(
    f"\n{MARK} {name}\n".encode() + content
    for name, content in (
        *((name, b"x") for name in PROPERTIES), ("gpu", b"GLES: ARM, Mali, 3.2"),
        ("taskset", b"/bin/taskset"), ("boot", b"0" * 36),
        *zip(
            ("cores", "battery", "memory", "storage", "thermal", "power", "load"),
            _samples("cores", "battery", "available", "df", "thermal", "power", "load"),
            strict=True,
        ),
    )
)  # fmt: skip
LABELS = (
    b"level: ",
    b"temperature: ",
    b"count=",
    b"avg=",
    b"p95=",
    b"ms\n",
    b"Iteration ",
    b" of ",
    b"Inference (avg): ",
    b"e+06",
    b"\r\n",
    b"MB): ",
    b": ",
    b"=",
    b"%",
    b" kB\n",
    b"Replacing 1 out of 2 node(s) with delegate (",
)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _of_text(parser: Parser) -> Callable[[bytes], object]:
    return lambda data: parser(_text(data))


def free_space(data: bytes) -> object:
    found = free_bytes(_text(data))
    assert found is None or found >= 0
    return found


def battery(data: bytes) -> object:
    found = parse_battery(_text(data))
    if found is not None:
        assert found.percent is None or 0 <= found.percent <= 100, "a battery beyond full"
        assert found.temp_c is None or -40 <= found.temp_c <= 150
    return found


def electric(data: bytes) -> object:
    found = parse_look({"supply": _text(data), "rails": _text(data), "battery": _text(data)})
    assert found.voltage_mv is None or 2500 <= found.voltage_mv <= 10_000
    assert found.current is None or 0 <= found.current <= 20_000_000
    return found


def thermal(data: bytes) -> object:
    return parse_thermal(_text(data)), parse_is_screen_on(_text(data))


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


def uptime(data: bytes) -> object:
    """What a phone that starts says decides how long a host waits for it."""

    class Phone:
        def connect(self) -> None: ...

        def shell(self, *_script: str, **_how: object) -> ShellResult:
            return ShellResult(exit_code=0, stdout=_text(data), stderr="")

    found = fitness._uptime_s(Phone(), lambda: False)  # type: ignore[arg-type]
    wait_s = max(0.0, fitness.SETTLE_S - found) if found is not None else 0.0
    assert 0 <= wait_s <= fitness.SETTLE_S, f"the host waits {wait_s:g} s"
    return found


def host_text(data: bytes) -> object:
    text = _text(data)
    found = (
        parse_stat(text), parse_load(text), parse_available_memory(text), parse_cpuinfo_mhz(text),
        parse_oom_kills(text), parse_number(text),
    )  # fmt: skip
    assert all(value is None or math.isfinite(value) for value in (found[1], found[5]))
    return found


def benchmark_text(data: bytes) -> object:
    found = read_text(_text(data))
    assert found.summary.p95_ns is None or found.summary.p95_ns >= found.summary.latency_ns
    assert found.summary.latency_ns <= 1000 * found.summary.mean_ns
    return found


def benchmark_result(data: bytes) -> object:
    return read_result(data)


def benchmark_model(data: bytes) -> object:
    text, _, result = data.partition(SEPARATOR)
    run = ProgramCall(argv=("/t/benchmark_model", "--use_gpu=true"), result_file="/r")
    return _stored(BenchmarkModel().read(_output(run, text, result or None)))


def executor_runner(data: bytes) -> object:
    text, _, log = data.partition(SEPARATOR)
    run = ProgramCall(argv=("/t/executor_runner",), log_tag="ExecuTorch", warmup_runs=1)
    output = ProgramOutput(run=run, exit_code=0, stdout=_text(text), stderr="", logcat=_text(log))
    return _stored(ExecutorRunner().read(output))


def perf_test(data: bytes) -> object:
    text, _, result = data.partition(SEPARATOR)
    run = ProgramCall(argv=("/t/perf_test",), result_file="/r", warmup_runs=1)
    return _stored(PerfTest().read(_output(run, text, result or None)))


def failed_program(data: bytes) -> object:
    """A program that ended badly is a typed error, whatever its last words."""
    run = ProgramCall(argv=("/t/x",))
    exit_code = data[0] if data else 1
    for runner in (BenchmarkModel(), ExecutorRunner(), PerfTest()):
        output = ProgramOutput(run=run, exit_code=exit_code or 1, stdout="", stderr=_text(data[1:]))
        try:
            reading: object = runner.read(output)
        except AgentError as error:
            reading = error
        assert isinstance(reading, AgentError), "a failed program has a reading"
        assert len(str(reading)) < 2000
    return exit_code


def delegation(data: bytes) -> object:
    found = read_delegation(_text(data), "gpu")
    assert found.node_share is None or 0 <= found.node_share <= 1
    return found


def _output(run: ProgramCall, text: bytes, result: bytes | None) -> ProgramOutput:
    return ProgramOutput(run=run, exit_code=0, stdout=_text(text), stderr="", result=result)


def _stored(reading: Measurement) -> Measurement:
    """What can be stored: whole, not negative, of a kind that JSON has."""
    assert all(sample > 0 for sample in reading.samples_ns)
    times = (reading.load_ns, reading.first_inference_ns, reading.warmup_ns)
    assert all(value is None or value >= 0 for value in times)
    if reading.summary is not None:
        to_json(reading.summary)
    return reading


def _target(
    name: str, check: Callable[[bytes], object], samples: tuple[bytes, ...], share: float = 1.0
) -> Target:
    numbers = one_of((*HOSTILE, "1", "41.2", "1e3", "-5", "100", "4000000000"))
    known = [line for sample in samples for line in sample.decode("utf-8", "replace").split("\n")]
    # Lines of real output, each maybe with a figure of another kind behind it.
    mixed = lines(st.one_of(one_of(known), st.builds("{}{}".format, one_of(known), numbers)))
    return Target(
        name=name,
        inputs=st.one_of(mutated(samples, LABELS), mutated(samples, LABELS), mixed, arbitrary()),
        check=check,
        may_raise=(AgentError,),
        share=share,
    )


def _with_results(texts: tuple[bytes, ...], results: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return (*texts, *(text + SEPARATOR + result for text in texts for result in results))


_CORES, _TOPOLOGY = _samples("cores", "topology")
_CHECKED = (
    _target("df", free_space, _samples("df")),
    _target("dumpsys_battery", battery, _samples("battery")),
    _target("power", electric, _samples("battery", "electric")),
    _target("dumpsys_thermal", thermal, _samples("thermal", "power")),
    _target("cores", cores, (_CORES, _CORES + _TOPOLOGY)),
    _target("probe", probe, (PROBE,)),
    _target("boot", uptime, (*_samples("uptime"), b"1\n3.5 1\n", b"0\n1 1\n"), 0.5),
    _target(
        "host_text",
        host_text,
        _samples("stat", "load", "available", "clocks", "oom", "number"),
    ),
    _target("benchmark_text", benchmark_text, BENCHMARK),
    _target("benchmark_result", benchmark_result, RESULTS),
    _target("benchmark_model", benchmark_model, _with_results(BENCHMARK, RESULTS)),
    _target("executor_runner", executor_runner, _with_results(EXECUTOR, EXECUTOR)),
    _target("perf_test", perf_test, _with_results(PERF, _samples("perf file"))),
    _target("failed_program", failed_program, (*BENCHMARK, *EXECUTOR, b"\x8bSegmentation fault")),
    _target("delegation", delegation, BENCHMARK),
)
TARGETS = (
    *_CHECKED,
    *(
        _target(f"parser_{name.replace(' ', '_')}", _of_text(parser), (text.encode(),), QUICK_SHARE)
        for name, (parser, text) in TEXTS.items()
    ),
)
