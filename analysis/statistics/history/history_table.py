"""Table `history`: a model's latency in each sweep, and the steps in it.

What all models of a platform have in common is the host's part (`level_steps.common_course`); the
rest of a course is the model's. With fewer than three models of a platform the two cannot be told
apart.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.labels import short_commits
from fleetrank.analysis.panel.panel import positions
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.history.level_steps import (
    ALPHA,
    LEAST_TOGETHER,
    LEAST_VALUES,
    common_course,
    level_steps,
)
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.chosen_workload import known_workload
from fleetrank.analysis.stored.load import IS_SUSTAINED, last_attempts
from fleetrank.analysis.stored.selection import MARGIN, margin_of
from fleetrank.analysis.tables.table import Table, explained, frame_of
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.wording import count_of

_PLATFORM = ("platform_key", "workload")
_PLACE = (*_PLATFORM, "model")
_FACTS = ("git_commit", "runtime_version", "artifact_sha256", "os", "fleetrank_version")
"""What most often explains a step, the first first."""
_TITLES = {"sweeps": "Latency in each sweep", "steps": "Steps of latency"}
_NEEDS = "measure the same models again: `fleetrank sweep run SPEC`, after each change"
_CHANGE = ("moved", "ratio", "ratio_low", "ratio_high")


class Moved(StrEnum):
    """What a step is of."""

    MODEL = "model"
    HOST = "host"
    EITHER = "model or host"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStep:
    """One step.

    Attributes:
        moved: what did; a step of the host is in the courses of all models.
        ratio: of the new level over the old one, above 1 is slower; with the interval that holds
            for all steps of the platform together.
        model: `None` of a step of the host.
        after, sweep_id: the last sweep of the old level, and the first of the new one.
        sweeps_before, sweeps_after: of the two levels.
        differs: the facts that changed between the two sweeps; `None` if no fact did.
    """

    moved: Moved
    ratio: float
    ratio_low: float
    ratio_high: float
    platform_key: str
    workload: str
    model: str | None
    after: str
    sweep_id: str
    started_utc: datetime
    sweeps_before: int
    sweeps_after: int
    differs: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The courses of the selected models over sweeps, by platform, workload, model and time.

    Attributes:
        cells: one row for each model and sweep. `host_ratio` is what all models of the platform
            have in common in this sweep, over its median, null with fewer than three models;
            `own_ratio` is the rest of the latency, over the course's median.
        steps: as `SweepStep`.
    """

    cells: pl.DataFrame
    steps: pl.DataFrame


@once_a_session
def history(session: Session) -> History:
    """The history of each platform; models that are not selected show the host too.

    Raises:
        NoDataError: no model was measured on the same platform in two sweeps.
        AnalysisError: the margin is wrong.
    """
    least = math.log1p(margin_of(session.selection, MARGIN))
    chosen, every = session.selection.model, replace(session.selection, model=None)
    of_all = _values(session.asked(every))
    mine = of_all if chosen is None else _values(session)
    beside = of_all.join(mine, on=_PLATFORM, how="semi", maintain_order="left")
    parts = [_courses(one, least) for one in beside.partition_by(_PLATFORM, maintain_order=True)]
    cells, steps = pl.concat(one for one, _ in parts), [step for _, some in parts for step in some]
    is_mine = pl.col("model").is_in(mine["model"].unique().to_list())
    return History(
        cells=cells.filter(is_mine),
        steps=frame_of(SweepStep, steps).filter(is_mine | pl.col("model").is_null()),
    )


def _values(session: Session) -> pl.DataFrame:
    """The median of each cell in each sweep, without the rounds' effects, by platform and time."""
    chosen = [session.of_workload(name) for name in session.chosen_workloads]
    is_ordinary = ~IS_SUSTAINED.fill_null(value=False) & (pl.col("latency_p50_ns") > 0)
    facts = [pl.col(name).drop_nulls().last() for name in (*_FACTS, "device", "origin")]
    parts = [
        one.rounds.of_attempts(last_attempts(one.attempts.filter(is_ordinary)), "level_ns")
        .with_columns(known_workload().alias("workload"))
        .group_by(*_PLACE, "sweep_id")
        .agg(
            pl.col("latency_p50_ns").median().alias("level_ns"),
            pl.len().cast(pl.Int64).alias("repeats"),
            pl.col("started_utc").min(),
            *facts,
        )
        .with_columns(short_commits(pl.col("git_commit")))
        .collect()
        for one in chosen
    ]
    rows = pl.concat(parts) if parts else pl.DataFrame()
    if not rows.is_empty():
        rows = rows.filter(pl.len().over(*_PLACE) > 1)
    if rows.is_empty():
        raise NoDataError("no model was measured on the same platform in two sweeps", _NEEDS)
    return rows.sort(*_PLACE, "started_utc", "sweep_id")


def _courses(rows: pl.DataFrame, least: float) -> tuple[pl.DataFrame, list[SweepStep]]:
    """The rows of one platform with the parts of host and model, and the steps, the host's first.

    Of fewer than three models no part is the host's: a step is then of either.
    """
    models = rows["model"].unique(maintain_order=True)
    times = rows.group_by("sweep_id").agg(pl.col("started_utc").min())
    sweeps = times.sort("started_utc", "sweep_id")["sweep_id"]
    at = positions(models, rows["model"]), positions(sweeps, rows["sweep_id"])
    logs = np.full((len(models), len(sweeps)), np.nan)
    logs[at] = np.log(rows["level_ns"])
    host = common_course(logs)
    n_shared = max(int(np.isfinite(host).sum()) - 1, 0)
    own, of_own = logs - np.nan_to_num(host), Moved.MODEL if n_shared else Moved.EITHER
    around = own - np.nanmedian(own, axis=1, keepdims=True)
    ratios = {"host_ratio": np.exp(host)[at[1]], "own_ratio": np.exp(around)[at]}
    found = [(Moved.HOST, one) for one in level_steps(host[None], least)]
    found += [(of_own, one) for one in level_steps(own, least, n_shared=n_shared)]
    steps = []
    for moved, step in found:
        model = None if moved is Moved.HOST else str(models[step.course])
        mine = rows if model is None else rows.filter(model=model)
        earlier = [one for one in sweeps[: step.at] if one in mine["sweep_id"]]
        before, after = (
            mine.filter(sweep_id=one).row(0, named=True) for one in (earlier[-1], sweeps[step.at])
        )
        ratio, low, high = map(math.exp, (step.change, step.low, step.high))
        steps.append(
            SweepStep(
                moved=moved, ratio=ratio, ratio_low=low, ratio_high=high,
                platform_key=after["platform_key"], workload=after["workload"], model=model,
                after=before["sweep_id"], sweep_id=after["sweep_id"],
                started_utc=after["started_utc"], sweeps_before=step.n_before,
                sweeps_after=step.n_after, differs=_differs(before, after),
            )
        )  # fmt: skip
    known = {name: pl.Series(values, nan_to_null=True) for name, values in ratios.items()}
    return rows.with_columns(**known), steps


def _differs(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """The facts that are known on both sides and not equal, with their values."""
    changed = [
        f"{name} {before[name][:_SHOWN]} to {after[name][:_SHOWN]}"
        for name in _FACTS
        if None not in (before[name], after[name]) and before[name] != after[name]
    ]
    return ", ".join(changed) or None


_SHOWN = 12
"""Letters of a commit, a hash or a version in a sentence."""


def history_table(session: Session) -> Table:
    """One row for each model, platform and sweep, with the steps.

    Raises:
        NoDataError: no model was measured on the same platform in two sweeps.
    """
    found = history(session)
    of_host, of_model = (
        found.steps.filter(is_such)
        for is_such in (pl.col("model").is_null(), pl.col("model").is_not_null())
    )
    # A row has the step of its model, or else that of the host.
    cells = found.cells.join(
        of_model.select(*_PLACE, "sweep_id", *_CHANGE), on=(*_PLACE, "sweep_id"), how="left",
        maintain_order="left",
    ).join(
        of_host.select(*_PLATFORM, "sweep_id", *_CHANGE), on=(*_PLATFORM, "sweep_id"), how="left",
        suffix="_of_host", maintain_order="left",
    )  # fmt: skip
    return _table(
        "sweeps",
        session,
        cells.select(
            "model", *_PLATFORM, "sweep_id", "started_utc", "git_commit", "runtime_version",
            "repeats", (pl.col("level_ns") / NS_PER_MS).alias("latency_p50_ms"), "host_ratio",
            *(pl.coalesce(name, f"{name}_of_host") for name in _CHANGE),
        ),
    )  # fmt: skip


def steps_table(session: Session) -> Table:
    """One row for each step; empty if there is none.

    Raises:
        NoDataError: no model was measured on the same platform in two sweeps.
    """
    return _table("steps", session, history(session).steps)


def _table(part: str, session: Session, frame: pl.DataFrame) -> Table:
    return Table(
        title=_TITLES[part],
        frame=frame,
        notes=(*banners(history(session).cells), *_notes(history(session))),
        explanation=explained(
            f"history/{part}",
            {
                "percent": 100 * margin_of(session.selection, MARGIN),
                "error_percent": 100 * ALPHA,
                "least_models": LEAST_TOGETHER,
                "least_sweeps": LEAST_VALUES,
            },
        ),
    )


def _notes(found: History) -> Iterator[str]:
    moved, courses = found.steps["moved"].to_list(), found.cells.group_by(_PLACE).len()["len"]
    said = [f"{moved.count(what)} of {_ARTICLES[what]}" for what in Moved if what in moved]
    steps = f"steps: {', '.join(said)}" if said else "no steps"
    yield f"{count_of(len(courses), 'course')} over sweeps, {steps}."
    if few := (courses < LEAST_VALUES).sum():
        yield f"{few} have fewer than {LEAST_VALUES} sweeps, in which no step can be found."


_ARTICLES = {Moved.MODEL: "a model", Moved.HOST: "the host", Moved.EITHER: "a model or the host"}
