from statistics import fmean, pstdev

import pytest
from device_parsers import BENCHMARK, CORES, DF, MEMINFO, output
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.state.dumpsys import parse_battery, parse_thermal
from fleetrank.device_agents.android.state.phone_cores import parse_cores
from fleetrank.device_agents.android.state.probe_text import facts_of_sections, free_bytes
from fleetrank.device_agents.android.state.waits import parse_uptime
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.device_output import BATTERY_PERCENT, refuse_impossible
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.device_agents.linux.conditions import parse_available_memory, parse_load
from fleetrank.foundation.vocabulary import ErrorKind, Statistic


@pytest.mark.parametrize(
    ("parse", "text", "read"),
    [
        (parse_battery, "level: 101\nscale: 100\n", "level: 101"),
        (parse_battery, "level: -1\n", "level: -1"),
        (parse_battery, "level: 50\nscale: 25\n", "scale: 25"),
        (parse_battery, "level: -50\nscale: -100\n", "scale: -100"),
        (parse_battery, "level: 999999999999\n", "level: 999999999999"),
        (parse_battery, "level: 50\ntemperature: 1510\n", "temperature: 1510"),
        (parse_battery, "level: 50\ntemperature: -410\n", "temperature: -410"),
        (parse_thermal, "Thermal Status: 7\n", "Thermal Status: 7"),
        (parse_thermal, "Thermal Status: -1\n", "Thermal Status: -1"),
        (parse_cores, "0 20000001 1 1 a\n", "20000001 kHz"),
        (parse_cores, "0 1 99999999999 1 a\n", "99999999999 kHz"),
        (parse_cores, "0 1 1 -5 a\n", "-5 kHz"),
        (free_bytes, DF.replace("100000000 ", "9999999999999999 "), "9999999999999999"),
        (parse_available_memory, MEMINFO.replace("3865500", "3865500000000000"), "3865500000000"),
        (parse_load, "99999999.0 1 1", "99999999.0"),
        (parse_uptime, "1\n-1e300 1", "-1e300"),
        (parse_uptime, "1\nnan 1", "nan"),
    ],
)
def test_a_reading_that_cannot_be_is_refused_with_what_was_read(parse, text, read) -> None:
    with pytest.raises(BadOutputError) as caught:
        parse(text)
    assert read in caught.value.message
    assert failure_from_error(caught.value, "start").kind is ErrorKind.BAD_OUTPUT


def test_a_phone_with_too_much_memory_is_refused() -> None:
    sections = {"memory": MEMINFO.replace("7731000", "7731000000000000")}
    with pytest.raises(BadOutputError, match="7731000000000000 kB"):
        facts_of_sections(sections, has_exit_codes=True)


def test_the_ends_of_a_range_can_be() -> None:
    for percent in (0, 100):
        BATTERY_PERCENT.require(percent, "")
    assert parse_cores("0 20000000 0 - a\n")[0].max_khz == 20_000_000
    assert parse_cores(CORES)[0].cap_khz == 1_803_000


@pytest.mark.parametrize(
    "change",
    [
        ("p95=8790", "p95=8540"),
        ("p95=8790", "p95=9121"),
        ("min=8390", "min=8542"),
        ("min=8390 max=9120", "min=9120 max=8390"),
        ("min=8390", "min=-8390"),
        ("avg=8560.25", "avg=8.56025"),
        ("std=112", "std=999999"),
        ("count=117", "count=0"),
        ("Inference (avg): 8560.25", "Inference (avg): 8.56025"),
        ("Replacing 65 out of 65", "Replacing 66 out of 65"),
    ],
    ids=lambda change: change[1],
)
def test_statistics_that_no_runs_have_are_refused(change: tuple[str, str]) -> None:
    assert BenchmarkModel().read(output(BENCHMARK, backend="xnnpack")).summary is not None
    head, phase, tail = BENCHMARK.rpartition("Running benchmark")
    text = head.replace(*change) + phase + tail.replace(*change)
    if not change[0].startswith("Replacing"):
        text = head + phase + tail.replace(*change)
    assert text != BENCHMARK
    with pytest.raises(BadOutputError):
        BenchmarkModel().read(output(text, backend="xnnpack"))


def test_a_median_a_thousand_times_the_mean_is_refused() -> None:
    with pytest.raises(BadOutputError, match="the median is more than 2 times the mean"):
        refuse_impossible(
            ToolSummary(
                latency_ns=8_000_000_000,
                statistic=Statistic.MEDIAN,
                mean_ns=8_000_000,
                count=100,
            )
        )


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60))
def test_statistics_of_any_samples_are_believed(samples_ns: list[int]) -> None:
    ordered, n = sorted(samples_ns), len(samples_ns)
    p50, p90, p95, p99 = (ordered[n * percent // 100] for percent in (50, 90, 95, 99))
    summary = ToolSummary(
        count=n,
        latency_ns=p50,
        statistic=Statistic.MEDIAN,
        mean_ns=round(fmean(ordered)),
        std_ns=round(pstdev(ordered)),
        p90_ns=p90,
        p95_ns=p95,
        p99_ns=p99,
    )
    refuse_impossible(summary, min_ns=ordered[0], max_ns=ordered[-1])
