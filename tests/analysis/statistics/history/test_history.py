"""Table `history`: planted steps of a model and of the host, over sweeps."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from wording import has

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.statistics.history.history_table import Moved
from fleetrank.analysis.statistics.history.level_steps import common_course, level_steps
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow

Make = Callable[[Iterable[dict[str, object]]], pl.LazyFrame]
START = datetime(2026, 1, 1, tzinfo=UTC)
N_SWEEPS, AT = 20, 12
N_PLATFORMS = 60


def course(model: str, factors: Iterable[float], **facts: object) -> list[dict[str, object]]:
    """One process in each sweep, at 100 ms times the factor of the sweep."""
    return [
        {
            "model": model, "sweep_id": f"gate-{at:02d}", "latency_p50_ns": 1e8 * factor,
            "started_utc": START + timedelta(days=at), "git_commit": f"c{at:02d}", **facts,
        }
        for at, factor in enumerate(factors)
    ]  # fmt: skip


def planted(n_models: int, *, host: float = 1.0, model: float = 1.0) -> list[dict[str, object]]:
    """Sweeps with noise of 1 % and a host of 2 %; a step of the host at 6, of `m0` at 12."""
    random = np.random.default_rng(0)
    shared = np.exp(random.normal(0, 0.02, N_SWEEPS))
    shared[6:] *= host
    rows = []
    for number in range(n_models):
        own = shared * np.exp(random.normal(0, 0.01, N_SWEEPS))
        if number == 0:
            own[AT:] *= model
        rows += course(f"m{number}", own.tolist())
    return rows


def table(part: str, frame: pl.LazyFrame, **settings: object) -> Table:
    return make_table(f"history/{part}", frame, Selection(settings=tuple(settings.items())))


def test_a_step_of_a_model_is_told_from_one_of_the_host(make_attempts: Make) -> None:
    frame = make_attempts(planted(4, host=1.2, model=1.1))
    steps = table("steps", frame).frame
    assert steps.select("moved", "model", "sweep_id", "after").rows() == [
        ("host", None, "gate-06", "gate-05"),
        ("model", "m0", "gate-12", "gate-11"),
    ]
    ratios = steps["ratio"].to_list()
    assert ratios == [pytest.approx(1.2, rel=0.03), pytest.approx(1.1, rel=0.03)]
    assert (steps["ratio_low"] > 1).all()
    assert steps["differs"].to_list() == ["git_commit c05 to c06", "git_commit c11 to c12"]
    found = table("sweeps", frame)
    marked = found.frame.filter(pl.col("moved").is_not_null())
    assert marked.select("model", "sweep_id", "moved").rows() == [
        ("m0", "gate-06", "host"), ("m0", "gate-12", "model"),
        *((f"m{number}", "gate-06", "host") for number in (1, 2, 3)),
    ]  # fmt: skip
    assert has(found.notes[-1], "4 courses", "1 of a model", "1 of the host")


def test_a_selected_model_is_told_from_the_host_by_the_others(make_attempts: Make) -> None:
    frame = make_attempts(planted(4, host=1.2, model=1.1))
    steps = make_table("history/steps", frame, Selection(model=("m0",))).frame
    assert steps["moved"].to_list() == ["host", "model"]
    rows = make_table("history/sweeps", frame, Selection(model=("m1",))).frame
    assert set(rows["model"]) == {"m1"}
    assert rows["moved"].drop_nulls().to_list() == ["host"]


def test_one_model_alone_is_not_told_from_the_host(make_attempts: Make) -> None:
    steps = table("steps", make_attempts(planted(1, model=1.3))).frame
    assert steps.select("moved", "model", "sweep_id").rows() == [(Moved.EITHER, "m0", "gate-12")]
    frame = table("sweeps", make_attempts(planted(2))).frame
    assert frame["host_ratio"].null_count() == frame.height


def test_steps_below_the_margin_are_not_shown(make_attempts: Make) -> None:
    frame = make_attempts(planted(4, model=1.1))
    assert table("steps", frame).frame["model"].to_list() == ["m0"]
    found = table("steps", frame, margin=0.2)
    assert found.frame.is_empty()
    assert has(found.notes[-1], "no steps")


def test_the_last_sweep_alone_can_be_a_step(make_attempts: Make) -> None:
    rows = planted(4)
    for row in rows:
        if (row["model"], row["sweep_id"]) == ("m2", "gate-19"):
            row["latency_p50_ns"] = 1.5 * float(str(row["latency_p50_ns"]))
    steps = table("steps", make_attempts(rows)).frame
    assert steps.select("model", "sweep_id", "sweeps_after").rows() == [("m2", "gate-19", 1)]


def test_two_sweeps_are_shown_without_steps_and_one_is_refused(make_attempts: Make) -> None:
    found = table("sweeps", make_attempts(course("a", [1.0, 3.0])))
    assert found.frame["latency_p50_ms"].to_list() == [100.0, 300.0]
    assert found.frame["moved"].null_count() == 2
    assert has(found.notes[-1], "1 have fewer than 3 sweeps")
    with pytest.raises(NoDataError, match="in two sweeps"):
        table("sweeps", make_attempts(course("a", [1.0])))


@pytest.mark.parametrize(
    ("n_models", "n_sweeps"),
    [(4, 5), *(pytest.param(*one, marks=pytest.mark.thorough) for one in ((1, 6), (6, 20)))],
)
def test_platforms_without_a_change_seldom_show_a_step(n_models: int, n_sweeps: int) -> None:
    random = np.random.default_rng(1)
    n_wrong = 0
    for _ in range(N_PLATFORMS):
        values = random.normal(0, 0.06, (n_models, n_sweeps)) + random.normal(0, 0.05, n_sweeps)
        host = common_course(values)
        is_known = np.isfinite(host).all()
        own = level_steps(
            values - host if is_known else values, 0.01, n_shared=is_known * (n_sweeps - 1)
        )
        n_wrong += bool(own) or bool(level_steps(host[None], 0.01))
    # 5 % of models and 5 % of the host; three standard errors.
    assert n_wrong / N_PLATFORMS < 0.1 + 3 * (0.1 * 0.9 / N_PLATFORMS) ** 0.5


def test_a_course_without_spread_has_no_steps_and_no_error() -> None:
    assert level_steps(np.zeros((3, 5)), 0.05) == []
    step = np.zeros((4, 10))
    step[1, 5:] = 0.5
    (found,) = level_steps(step - common_course(step), 0.05, n_shared=9)
    assert (found.course, found.at, found.change) == (1, 5, pytest.approx(0.5))
