"""The sentences on top of the page say no more than the numbers behind them carry."""

import polars as pl
import pytest

from fleetrank.analysis.report.sections.headline import Level, headlines
from fleetrank.analysis.tables.table import Table

_SCHEMA = {
    "level": pl.String, "measure": pl.String, "source": pl.String, "target": pl.String,
    "n_models": pl.Int64, "n_pairs": pl.Int64, "rho": pl.Float64, "low": pl.Float64,
    "high": pl.Float64, "null_mean": pl.Float64, "p_value": pl.Float64, "reason": pl.String,
}  # fmt: skip


def _table(*rows: dict[str, object]) -> Table:
    default = {
        "level": "tier", "measure": "latency", "source": "gpu", "target": "edge",
        "n_models": 13, "n_pairs": 4, "rho": 0.8, "low": 0.7, "high": 0.9,
        "null_mean": 0.0, "p_value": 0.001, "reason": None,
    }  # fmt: skip
    return Table(title="t", frame=pl.DataFrame([default | row for row in rows], schema=_SCHEMA))


@pytest.mark.parametrize(
    ("rho", "low", "high", "level", "words"),
    [
        (0.97, 0.92, 0.99, Level.GOOD, "carry over between GPUs and edge devices: rho 0.97"),
        (0.30, 0.01, 0.55, Level.POOR, "do not carry over"),
        (0.85, 0.70, 0.94, Level.FAIR, "partly carry over"),
        (
            0.72,
            0.30,
            0.95,
            Level.FAIR,
            "edge devices is undecided: rho 0.72",
        ),
        (-0.43, -0.9, 0.31, Level.POOR, "rho -0.43, at most 0.31"),
        (-0.1, -0.9, 0.65, Level.FAIR, "-0.90 to 0.65 over 13 models"),
        # A claimed bound is not rounded in its own favour.
        (0.97, 0.9651, 0.99, Level.GOOD, "at least 0.96."),
        (0.30, 0.01, 0.551, Level.POOR, "at most 0.56."),
        (0.95, None, None, Level.OPEN, "too few models for an interval"),
        (None, None, None, Level.OPEN, "is unknown"),
    ],
)
def test_the_sentence_follows_the_interval_and_not_the_point(
    rho: float | None, low: float | None, high: float | None, level: Level, words: str
) -> None:
    (line,) = headlines([_table({"rho": rho, "low": low, "high": high})], "")
    assert line.level is level
    assert words in line.sentence


def test_a_reason_stands_where_there_is_no_value() -> None:
    row = {"rho": None, "low": None, "high": None, "reason": "4 models in common"}
    (line,) = headlines([_table(row)], "")
    assert "4 models in common" in line.sentence


@pytest.mark.parametrize(("p", "verdict"), [(0.004, "exceeded, p = 0.004"), (0.3, "not exceeded")])
def test_frm_stands_beside_latency_with_its_null(p: float, verdict: str) -> None:
    frm = {"measure": "frm", "rho": 0.95, "null_mean": 0.93, "p_value": p}
    (line,) = headlines([_table({}, frm)], "")
    assert [figure.value for figure in line.figures] == ["0.80", "0.95", "0.93"]
    assert verdict in line.figures[2].detail


def test_the_devices_one_ships_to_come_first_and_one_s_own_tier_last() -> None:
    pairs = [("gpu", "gpu"), ("gpu", "cpu"), ("cpu", "edge"), ("gpu", "edge"), ("edge", "edge"),
             ("cpu", "cpu")]  # fmt: skip
    table = _table(*({"source": source, "target": target} for source, target in pairs))
    lines = headlines([table], "")
    assert [line.kicker.split(",")[0] for line in lines] == [
        "between CPUs and edge devices",
        "between GPUs and edge devices",
        "between GPUs and CPUs",
        "among edge devices",
        "among GPUs",
        "among CPUs",
    ]


def test_runtimes_answer_when_there_is_one_device() -> None:
    empty = _table({"level": "pair"})
    runtimes = _table({"level": "runtimes", "source": "onnx", "target": "torch"})
    (line,) = headlines([empty, runtimes], "")
    assert "between onnx and torch" in line.sentence
    assert line.kicker.endswith("on one device")


def test_without_any_pair_the_page_says_why() -> None:
    (line,) = headlines([], "only one platform was measured")
    assert line.level is Level.OPEN
    assert line.note == "only one platform was measured"
