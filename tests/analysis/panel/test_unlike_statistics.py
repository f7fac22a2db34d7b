"""What is compared where one side is a mean and the other a minimum, and what is not."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from wording import has

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import session_table

MODELS = [f"m{i}" for i in range(9)]


def _session(make_attempts, factor: float = 1.0, **statistics: str | None) -> Session:
    """Three repeats of nine models on each device, with the statistic of its rows.

    Minima are `factor` times the other figures.
    """
    rows = [
        {
            "model": model, "device": device, "repeat": repeat, "statistic": statistic,
            "latency_p50_ns": (10 + 5 * i + (i * 7 + repeat * 3 + len(device)) % 4)
            * (factor if statistic == "minimum" else 1.0),
            "accuracy_top1": 60.0 + i % 5,
        }
        for device, statistic in statistics.items()
        for i, model in enumerate(MODELS)
        for repeat in range(3)
    ]  # fmt: skip
    return Session(make_attempts(rows), Selection())


def _pairs(table, level: str = "pair") -> list[dict[str, object]]:
    return table.frame.filter(
        (pl.col("level") == level) & (pl.col("measure") == "latency")
    ).to_dicts()


@pytest.mark.slow
def test_a_ranking_of_means_against_one_of_minima_is_made_and_marked(make_attempts) -> None:
    session = _session(make_attempts, cpu="mean", phone="minimum")
    table = session_table("transfer", session)
    (row,) = _pairs(table)
    assert row["unlike"] == "statistic: mean / minimum"
    assert row["rho"] is not None
    assert row["low"] is not None
    assert any(has(note, "mean on cpu", "minimum on phone") for note in table.notes)


@pytest.mark.slow
def test_a_ceiling_is_not_made_across_unlike_statistics(make_attempts) -> None:
    like = _session(make_attempts, cpu="mean", phone="mean")
    unlike = _session(make_attempts, cpu="mean", phone="minimum")
    (expected,), (row,) = (_pairs(session_table("trust/ceiling", one)) for one in (like, unlike))
    assert expected["ceiling"] is not None
    same = ("figure", "reliability_source", "reliability_target", "low", "high")
    assert [row[name] for name in same] == [expected[name] for name in same]
    assert (row["ceiling"], row["share_of_ceiling"], row["method"]) == (None, None, None)
    assert has(row["reason"], "ceiling", "statistics")
    (tier,) = _pairs(session_table("trust/ceiling", unlike), "tier")
    assert tier["ceiling"] is None


@pytest.mark.slow
def test_a_constant_factor_between_statistics_does_not_change_a_prediction(make_attempts) -> None:
    figures = ["r2", "median_r2"]
    like, unlike = (
        session_table("predict/ratios", session).frame
        for session in (
            _session(make_attempts, cpu="mean", phone="mean"),
            _session(make_attempts, factor=0.8, cpu="mean", phone="minimum"),
        )
    )
    assert like[figures].drop_nulls(figures[0]).height > 0
    assert_frame_equal(unlike[figures], like[figures], abs_tol=1e-9)
    pairs = unlike.filter(pl.col("level") == "pair")
    assert set(pairs["unlike"]) == {"statistic: mean / minimum", "statistic: minimum / mean"}


@pytest.mark.slow
def test_a_statistic_that_one_side_does_not_state_is_named_so(make_attempts) -> None:
    (row,) = _pairs(session_table("transfer", _session(make_attempts, cpu="mean", phone=None)))
    assert row["unlike"] == "statistic: mean / not stated"


@pytest.mark.slow
def test_older_sweeps_of_another_statistic_are_not_repeats(make_attempts) -> None:
    rows = [
        {"sweep_id": sweep, "model": model, "started_utc": hour, "statistic": word,
         "latency_p50_ns": float(10 + i)}
        for sweep, hour, word in (("s1", 0, "minimum"), ("s2", 1, "mean"), ("s3", 2, "mean"))
        for i, model in enumerate(MODELS)
    ]  # fmt: skip
    session = Session(make_attempts(rows), Selection())
    layers = session.repeats.sweeps[0, :, 0, :]
    assert layers.shape[-1] == 2
