"""Verdicts of cells: what makes one noisy or doubtful, and what is said about it."""

import numpy as np
import pytest
from wording import has

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.verdicts import (
    history_sentences,
    sweep_sentences,
    with_verdicts,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

TWO_CORES = {"threads": 1, "logical_cores": 2}
OTHERS = "other programs used 100 % of its cores"


def _row(model: str = "m0", **facts: object) -> list[dict[str, object]]:
    """Processes of one cell; `ms` has the median of each."""
    every = facts.pop("ms", (10.0, 10.1, 10.2))
    return [
        {"model": model, "repeat": number, "latency_p50_ns": 1e6 * ms, **facts}
        for number, ms in enumerate(every)  # type: ignore[arg-type]
    ]


def _verdict(make_attempts, **facts: object) -> tuple[str | None, str | None]:
    session = Session(make_attempts(_row(**facts)), Selection())
    (row,) = with_verdicts(session).select("verdict", "why").rows()
    return row


@pytest.mark.parametrize(
    ("facts", "verdict", "why"),
    [
        ({}, "steady", None),
        ({"ms": (10.0,)}, None, None),
        ({"ms": (10.0, 10.9)}, "steady", None),
        ({"ms": (10.0, 11.5)}, "noisy", "two processes differ by 14 % on average"),
        ({"ms": (10.0,) * 8 + (12.0,)}, "steady", None),
        ({"busy_share_before": 1.0, **TWO_CORES}, "noisy", OTHERS),
        ({"busy_share_before": 1.0, "ms": (10.0,), **TWO_CORES}, "noisy", OTHERS),
        ({"busy_share_before": 1.0, "design": "rounds", **TWO_CORES}, "steady", None),
        ({"busy_share_before": 0.6, **TWO_CORES}, "steady", None),
        ({"busy_share_before": 0.6, "threads": 1}, "steady", None),
        ({"flags": ["preempted", "drift", "outliers"]}, "steady", None),
        ({"flags": ["throttled"]}, "doubtful", "the device was hot or slowed down"),
        ({"flags": ["hot"], "ms": (10.0, 11.5)}, "doubtful", "the device was hot or slowed down"),
        ({"flags": ["clocks_disagree"]}, "doubtful", "two clocks disagree about it"),
        ({"flags": ["nan_outputs"]}, "doubtful", "its outputs are not numbers"),
        ({"backend_nodes": 0, "graph_nodes": 9}, "doubtful", "nothing ran on cpu"),
        ({"integer_products": 3, "products": 9}, "doubtful", "3 of 9 products with integers"),
    ],
)
def test_a_verdict_follows_the_processes_and_not_their_flags(
    make_attempts, facts: dict[str, object], verdict: str | None, why: str | None
) -> None:
    assert _verdict(make_attempts, **facts) == (verdict, why)


@pytest.mark.thorough
def test_the_gap_of_processes_does_not_grow_with_their_number(make_attempts) -> None:
    rng = np.random.default_rng(1)
    for n in (2, 5, 40):
        medians = 10 * np.exp(rng.normal(0, 0.05, (200, n)))
        rows = [row for at, ms in enumerate(medians) for row in _row(f"m{at}", ms=tuple(ms))]
        gaps = with_verdicts(Session(make_attempts(rows), Selection()))["process_gap"]
        assert gaps.mean() == pytest.approx(0.0564, abs=0.006)


def test_a_sweep_is_told_cause_cure_and_what_is_not_decided(make_attempts) -> None:
    cores = {"threads": 2, "logical_cores": 2}
    wild = (10.0, 13.0, 11.5)
    rows = [*_row("a", ms=wild, **cores), *_row("b", ms=(11.8, 12.0, 12.1), **cores)]
    (said,) = sweep_sentences(with_verdicts(Session(make_attempts(rows), Selection())))
    for words in ("1 of 2 cells", "All cores were in use", "leave one free or use rounds",
                  "--repeat-noisy", "Not decided: the order of a and b"):  # fmt: skip
        assert words in said


def test_rounds_are_told_the_cause_and_no_order_that_the_host_changed(make_attempts) -> None:
    facts = {"design": "rounds", "flags": ["busy_host"], "logical_cores": 8}
    rows = [*_row("a", ms=(10.0, 13.0, 11.5), **facts), *_row("b", ms=(11.8, 12, 12.1), **facts)]
    (said,) = sweep_sentences(with_verdicts(Session(make_attempts(rows), Selection())))
    assert has(said, "Other programs", "stop them", "more rounds")
    assert "Not decided" not in said


def test_without_a_second_process_nothing_is_said_of_how_results_vary(make_attempts) -> None:
    rows = _row("a", ms=(10.0,), flags=["busy_host"], busy_share_before=1.0, **TWO_CORES)
    (said,) = sweep_sentences(with_verdicts(Session(make_attempts(rows), Selection())))
    assert has(said, "is noisy. Other programs")


@pytest.mark.parametrize(
    ("facts", "causes"),
    [
        ({"busy_share_before": 1.0}, [OTHERS]),
        ({"flags": ["busy_host", "niced"]}, ["other programs used the host", "niceness"]),
        ({"flags": ["cpu_quota"]}, ["CPU quota"]),
        ({"flags": ["throttled"], "clock_mhz_after": 800.0}, ["clock fell", "800 MHz, there 3000"]),
        ({"clock_mhz_after": 2900.0}, ["not recorded"]),
    ],
)
def test_a_cell_that_is_far_from_its_other_sweeps_is_told_by_how_much_and_why(
    make_attempts, facts: dict[str, object], causes: list[str]
) -> None:
    clock = {"clock_mhz_after": 3000.0}
    before = [_row(ms=(7.4, 7.5, 7.6), sweep_id=f"s{n}", started_utc=n, **clock) for n in (1, 2)]
    last = {"sweep_id": "s3", "started_utc": 3}
    now = _row(ms=(31.9, 32.0, 32.1), **TWO_CORES, **last, **facts) + _row("m1", **last)
    frame = make_attempts([*before[0], *before[1], *now])
    cells = with_verdicts(Session(frame, Selection(sweep="s3")))
    (said,) = history_sentences(cells, frame)
    assert has(said, "m0", "32 ms", "4.3 times the 7.5 ms", "2 other sweeps", *causes, "ab")
    assert history_sentences(cells.filter(model="m1"), frame) == ()
    # Processes that agree do not vary, whatever disturbed all of them.
    assert not any("vary" in one for one in sweep_sentences(cells))


def test_an_imported_sweep_is_not_told_to_measure_again(make_attempts) -> None:
    rows = _row("a", ms=(10.0, 13.0, 11.5), origin="imported")
    (said,) = sweep_sentences(with_verdicts(Session(make_attempts(rows), Selection())))
    assert "imported" in said
    assert "resume" not in said


def test_a_ranking_says_which_of_its_figures_are_doubtful(make_attempts) -> None:
    keys = [f"d{n}/onnx/cpu/eager/fp32/b1/t1/afree/{{}}" for n in range(6)]
    rows = [
        {"model": f"m{at}", "platform_key": key, "device": key.partition("/")[0],
         "latency_p50_ns": 1e6 * (at + 1) * (9 if (at, key) in {(3, keys[0]), (3, keys[1])} else 1)}
        for at in range(8)
        for key in keys
    ]  # fmt: skip
    notes = make_table("transfer", make_attempts(rows), Selection()).notes
    assert f"This table contains doubtful figures: m3 on {keys[0]}; m3 on {keys[1]}." in notes
    pair = Selection(source=keys[2], target=keys[3])
    notes = make_table("transfer", make_attempts(rows), pair).notes
    assert not any("doubtful" in note for note in notes)
