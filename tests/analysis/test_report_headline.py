"""The sentences on top of the page say no more than the numbers behind them carry."""

from dataclasses import replace

import pytest

from fleetrank.analysis.panel.agreement import Agreement
from fleetrank.analysis.panel.conditions import Level
from fleetrank.analysis.panel.draws import draws_for
from fleetrank.analysis.report.headline import Verdict, headlines
from fleetrank.analysis.statistics.transfer import TransferResult
from fleetrank.foundation.vocabulary import Axis

FIGURES = Agreement(
    level=Level.TIER,
    measure="latency",
    source="gpu",
    target="edge",
    n_models=13,
    most_models=13,
    n_pairs=4,
    rho=0.8,
    low=0.7,
    high=0.9,
    null_mean=0.0,
    p_value=0.001,
    residual_null_mean=0.6,
    residual_p=0.02,
)


def _result(*rows: dict[str, object]) -> TransferResult:
    groups = [replace(FIGURES, **row) for row in rows]  # type: ignore[arg-type]
    return TransferResult(
        axis=Axis.DEVICE, groups=tuple(groups), pairs=(), selected=(), draws=draws_for([]), seed=0,
        n_models=13, notes=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rho", "low", "high", "verdict", "words"),
    [
        (0.97, 0.92, 0.99, Verdict.GOOD, "carry over between GPUs and edge devices: rho 0.97"),
        (0.30, 0.01, 0.55, Verdict.POOR, "do not carry over"),
        (0.85, 0.70, 0.94, Verdict.FAIR, "partly carry over"),
        (
            0.72,
            0.30,
            0.95,
            Verdict.FAIR,
            "edge devices is undecided: rho 0.72",
        ),
        (-0.43, -0.9, 0.31, Verdict.POOR, "rho -0.43, at most 0.31"),
        (-0.1, -0.9, 0.65, Verdict.FAIR, "-0.90 to 0.65 over 13 models"),
        # A claimed bound is not rounded in its own favour.
        (0.97, 0.9651, 0.99, Verdict.GOOD, "at least 0.96."),
        (0.30, 0.01, 0.551, Verdict.POOR, "at most 0.56."),
        (0.95, None, None, Verdict.OPEN, "too few models for an interval"),
        (None, None, None, Verdict.OPEN, "is unknown"),
    ],
)
def test_the_sentence_follows_the_interval_and_not_the_point(
    rho: float | None, low: float | None, high: float | None, verdict: Verdict, words: str
) -> None:
    (line,) = headlines([_result({"rho": rho, "low": low, "high": high})], "")
    assert line.verdict is verdict
    assert words in line.sentence


@pytest.mark.parametrize(
    ("low", "p", "verdict", "word"),
    [
        (0.92, 0.01, Verdict.GOOD, "carry over"),
        (0.92, 0.3, Verdict.FAIR, "agree"),
        (0.92, None, Verdict.GOOD, "carry over"),
        (0.70, 0.3, Verdict.FAIR, "partly carry over"),
    ],
)
def test_an_order_that_flops_explain_is_not_green(
    low: float, p: float | None, verdict: Verdict, word: str
) -> None:
    (line,) = headlines([_result({"rho": 0.97, "low": low, "high": 0.99, "residual_p": p})], "")
    assert line.verdict is verdict
    assert f"ranks {word} between" in line.sentence
    assert ("FLOPs alone" in line.sentence) is (p == 0.3)


def test_an_order_that_does_not_carry_over_stays_red_whatever_flops_explain() -> None:
    (line,) = headlines([_result({"rho": 0.3, "low": 0.0, "high": 0.5, "residual_p": 0.9})], "")
    assert line.verdict is Verdict.POOR


def test_a_reason_stands_where_there_is_no_value() -> None:
    row = {"rho": None, "low": None, "high": None, "reason": "4 models in common"}
    (line,) = headlines([_result(row)], "")
    assert "4 models in common" in line.sentence


@pytest.mark.parametrize(("p", "verdict"), [(0.004, "exceeded, p = 0.004"), (0.3, "not exceeded")])
def test_frm_stands_beside_latency_with_its_null(p: float, verdict: str) -> None:
    # The null without any link to FLOPs is exceeded in both cases and decides nothing.
    frm = {"measure": "frm", "rho": 0.95, "residual_null_mean": 0.93, "residual_p": p}
    (line,) = headlines([_result({}, frm)], "")
    assert [figure.value for figure in line.figures] == ["0.80", "0.60", "0.95", "0.93"]
    assert line.figures[1].detail == "exceeded, p = 0.02"
    assert verdict in line.figures[3].detail


def test_without_flops_the_page_states_that_the_residual_null_is_unknown() -> None:
    (line,) = headlines([_result({"residual_null_mean": None, "residual_p": None})], "")
    assert "FLOPs" in line.figures[1].detail
    assert "unknown" in line.figures[1].detail


def test_the_devices_one_ships_to_come_first_and_one_s_own_tier_last() -> None:
    pairs = [("gpu", "gpu"), ("gpu", "cpu"), ("cpu", "edge"), ("gpu", "edge"), ("edge", "edge"),
             ("cpu", "cpu")]  # fmt: skip
    result = _result(*({"source": source, "target": target} for source, target in pairs))
    lines = headlines([result], "")
    assert [line.kicker.split(",")[0] for line in lines] == [
        "between CPUs and edge devices",
        "between GPUs and edge devices",
        "between GPUs and CPUs",
        "among edge devices",
        "among GPUs",
        "among CPUs",
    ]


def test_runtimes_answer_when_there_is_one_device() -> None:
    empty = _result()
    runtimes = _result({"level": Level.RUNTIMES, "source": "onnx", "target": "torch"})
    (line,) = headlines([empty, runtimes], "")
    assert "between onnx and torch" in line.sentence
    assert line.kicker.endswith("on one device")


def test_without_any_pair_the_page_says_why() -> None:
    (line,) = headlines([], "only one platform was measured")
    assert line.verdict is Verdict.OPEN
    assert line.note == "only one platform was measured"
