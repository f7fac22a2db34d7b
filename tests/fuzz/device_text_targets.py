"""What devices, their programs and the kernel print: hostile texts for `device_parsers`.

`HOLDS` names what an answer of a parser has to be.
"""

import math
from collections.abc import Callable
from typing import Any

from device_parsers import DATA, PROBES, TOOLS, Parser, encode_result
from hypothesis import strategies as st
from mutation import HOSTILE, arbitrary, lines, mutated, one_of
from target import QUICK_SHARE, Target

from fleetrank.device_agents.android.programs.benchmark_result import read_result
from fleetrank.device_agents.android.state.clusters import clusters_of
from fleetrank.device_agents.android.state.phone_cores import Core
from fleetrank.device_agents.android.state.run_clocks import RunClocks
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.errors import AgentError
from fleetrank.foundation.codec import to_json

BENCHMARK, EXECUTOR = (
    tuple(path.read_bytes() for path in sorted((DATA / name).glob("*.txt")))
    for name in ("benchmark_model", "executor_runner")
)
TEXTS = PROBES | TOOLS
RESULT = encode_result(
    {
        "latency_metrics": {"avg_ms": 1.5, "median_ms": 1.4, "p95_ms": 2.0, "init_ms": 3.0},
        "memory_metrics": {"init_footprint_kb": 100, "overall_footprint_kb": 200},
        "misc_metrics": {"num_runs": 50, "num_warmup_runs": 5},
    }
)
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


def _is_summary(reading: Measurement) -> bool:
    found = reading.summary
    return _is_stored(reading) and (
        found is None
        or (
            _within(found.p95_ns, found.latency_ns, math.inf)
            and found.latency_ns <= 1000 * (found.mean_ns or found.latency_ns)
        )
    )


def _are_clocks(found: tuple[Core, ...]) -> bool:
    clocks = RunClocks(looks=(found, found), registered_cap_mhz=1000.0)
    share = clocks.registered_share
    numbers = [number for one in clusters_of(found) for number in one.cores]
    return (
        (share is None or (math.isfinite(share) and share > 0))
        and clocks.lowest_fall in (None, 1.0)  # nothing fell between two equal looks
        and all(_within(one.max_khz, 0, 20_000_000) for one in found)
        and sorted(numbers) == [one.number for one in found]  # each in one cluster
    )


HOLDS: dict[str, Callable[[Any], bool]] = {
    "df": lambda it: _within(it, 0, math.inf),
    "uptime": lambda it: _within(it, 0, math.inf),  # a host waits by it
    "cores": _are_clocks,
    "facts": lambda it: bool(to_json(it)),
    "linux.conditions": lambda it: bool(to_json(it)),
    "refusal": lambda it: str(it).isprintable() and len(str(it)) < 2000,
    "failed": lambda _it: False,  # a program that failed has no reading
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
    "benchmark text": _is_summary,
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
        try:
            found = parser(_text(data))
        except AgentError as error:
            if len(str(error)) < 2000:
                raise
            raise AssertionError("a message that is as long as the text") from error
        assert name not in HOLDS or HOLDS[name](found), f"what holds of {name} does not: {found}"
        return found

    return check


def _target(
    check: Callable[[bytes], object], samples: tuple[bytes, ...], share: float = 1.0, name: str = ""
) -> Target:
    numbers = one_of((*HOSTILE, "1", "41.2", "1e3", "-5", "100", "4000000000"))
    known = [line for sample in samples for line in sample.decode("utf-8", "replace").split("\n")]
    # Lines of real output, each maybe with a figure of another kind behind it.
    mixed = lines(st.one_of(one_of(known), st.builds("{}{}".format, one_of(known), numbers)))
    inputs = st.one_of(mutated(samples, LABELS), mutated(samples, LABELS), mixed, arbitrary())
    return Target(check, inputs, (AgentError,), share, name)


TARGETS = (
    *(
        _target(
            _of_text(name, parser),
            (text.encode(), *MORE.get(name, ())),
            1.0 if name in HOLDS else QUICK_SHARE,
            f"parser_{name.replace(' ', '_')}",
        )
        for name, (parser, text) in TEXTS.items()
    ),
    # Its file is no text.
    _target(read_result, (RESULT,), name="benchmark_result"),
)
