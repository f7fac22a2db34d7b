"""Table `history`: a model's latency in each sweep, and the steps in it.

What all models of a platform have in common is the host's part (`level_steps.common_course`); the
rest of a course is the model's. With fewer than three models of a platform the two cannot be told
apart.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.labels import short_commits
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.history.level_steps import (
    ALPHA,
    LEAST_TOGETHER,
    LEAST_VALUES,
    LevelStep,
    common_course,
    level_steps,
)
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.chosen_workload import known_workload
from fleetrank.analysis.stored.load import IS_SUSTAINED, last_attempts
from fleetrank.analysis.stored.selection import MARGIN, margin_of
from fleetrank.analysis.tables.table import CellRow, Table, explained, frame_of
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.wording import count_of

_PLACE = ("platform_key", "workload", "model")
_FACTS = ("git_commit", "runtime_version", "artifact_sha256", "os", "fleetrank_version")
"""What most often explains a step, the first first."""
_TITLES = {"sweeps": "Latency in each sweep", "steps": "Steps of latency"}
_NEEDS = "measure the same models again: `fleetrank sweep run SPEC`, after each change"


class Moved(StrEnum):
    """What a step is of."""

    MODEL = "model"
    HOST = "host"
    EITHER = "model or host"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """How a level changed.

    Attributes:
        moved: what did; a step of the host is in the rows of all models.
        ratio: of the new level over the old one, above 1 is slower; with the interval that holds
            for all steps of the platform together.
    """

    moved: Moved
    ratio: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptCell(CellRow):
    """One model on one platform in one sweep; a step is in the row where its new level begins.

    Attributes:
        host_ratio: what all models of the platform have in common in this sweep, over its median;
            `None` with fewer than three models.
    """

    workload: str
    sweep_id: str
    started_utc: datetime
    git_commit: str | None
    runtime_version: str | None
    repeats: int
    latency_p50_ms: float
    host_ratio: float | None
    change: LevelChange | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStep:
    """One step.

    Attributes:
        model: `None` of a step of the host.
        after, sweep_id: the last sweep of the old level, and the first of the new one.
        sweeps_before, sweeps_after: of the two levels.
        differs: the facts that changed between the two sweeps; `None` if no fact did.
    """

    change: LevelChange
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
    """The courses of the models of one platform and workload.

    Attributes:
        rows: one for each selected model and sweep, sorted by model and time.
        models, sweeps: names in the order of the arrays; sweeps by time.
        logs: of the latencies in ns, (n_models, n_sweeps); NaN where a sweep lacks a model.
        host: what the models share, logs, (n_sweeps,); NaN with fewer than three models.
        steps: with what each is of; `course` is the model, 0 of the host.
    """

    rows: pl.DataFrame
    models: Sequence[str]
    sweeps: Sequence[str]
    logs: Floats
    host: Floats
    steps: Sequence[tuple[Moved, LevelStep]]


@once_a_session
def histories(session: Session) -> Sequence[History]:
    """The history of each platform, sorted; models that are not selected show the host too.

    Raises:
        NoDataError: no model was measured on the same platform in two sweeps.
        AnalysisError: the margin is wrong.
    """
    least = math.log1p(margin_of(session.selection, MARGIN))
    chosen, every = session.selection.model, replace(session.selection, model=None)
    of_all = _values(session.asked(every))
    mine = of_all if chosen is None else _values(session)
    beside = of_all.join(mine, on=("platform_key", "workload"), how="semi")
    parts = beside.group_by("platform_key", "workload", maintain_order=True)
    return [_of_models(_history(rows, least), {*mine["model"]}) for _, rows in parts]


def _of_models(one: History, models: set[str]) -> History:
    """The history with the rows and steps of some models, and the steps of the host."""
    steps = [
        (moved, step)
        for moved, step in one.steps
        if moved is Moved.HOST or one.models[step.course] in models
    ]
    return replace(one, rows=one.rows.filter(pl.col("model").is_in(models)), steps=steps)


def _values(session: Session) -> pl.DataFrame:
    """The median of each cell in each sweep, without the rounds' effects, by platform and time."""
    chosen = [session.of_workload(name) for name in session.chosen_workloads]
    is_ordinary = ~IS_SUSTAINED.fill_null(value=False) & (pl.col("latency_p50_ns") > 0)
    facts = [pl.col(name).drop_nulls().last() for name in (*_FACTS, "origin", "device")]
    parts = [
        one.rounds.of_attempts(last_attempts(one.attempts.filter(is_ordinary)), "level_ns")
        .with_columns(known_workload().alias("workload"))
        .group_by(*_PLACE, "sweep_id")
        .agg(
            pl.col("latency_p50_ns").median().alias("level_ns"),
            pl.len().alias("repeats"),
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
    return rows.sort("platform_key", "workload", "model", "started_utc", "sweep_id")


def _history(rows: pl.DataFrame, least: float) -> History:
    models = rows["model"].unique(maintain_order=True).to_list()
    times = rows.group_by("sweep_id").agg(pl.col("started_utc").min())
    sweeps = times.sort("started_utc", "sweep_id")["sweep_id"].to_list()
    logs = np.full((len(models), len(sweeps)), np.nan)
    for row in rows.iter_rows(named=True):
        logs[models.index(row["model"]), sweeps.index(row["sweep_id"])] = math.log(row["level_ns"])
    host = common_course(logs)
    if not np.isfinite(host).any():
        steps = [(Moved.EITHER, one) for one in level_steps(logs, least)]
    else:
        n_shared = int(np.isfinite(host).sum()) - 1
        own = level_steps(logs - host, least, n_shared=n_shared)
        steps = [(Moved.HOST, one) for one in level_steps(host[None], least)]
        steps += [(Moved.MODEL, one) for one in own]
    return History(rows=rows, models=models, sweeps=sweeps, logs=logs, host=host, steps=steps)


def history_table(session: Session) -> Table:
    """One row for each model, platform and sweep, with the steps.

    Raises:
        NoDataError: no model was measured on the same platform in two sweeps.
    """
    found = histories(session)
    return _table("sweeps", session, found, frame_of(SweptCell, _cells(found)))


def steps_table(session: Session) -> Table:
    """One row for each step; empty if there is none.

    Raises:
        NoDataError: no model was measured on the same platform in two sweeps.
    """
    found = histories(session)
    rows = [row for one in found for row in _steps(one)]
    return _table("steps", session, found, frame_of(SweepStep, rows))


def _table(part: str, session: Session, found: Sequence[History], frame: pl.DataFrame) -> Table:
    return Table(
        title=_TITLES[part],
        frame=frame,
        notes=(*banners(pl.concat([one.rows for one in found])), *_notes(found)),
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


def _notes(found: Sequence[History]) -> Iterator[str]:
    moved = [what for one in found for what, _ in one.steps]
    n_courses = sum(one.rows["model"].n_unique() for one in found)
    said = [f"{moved.count(what)} of {_ARTICLES[what]}" for what in Moved if what in moved]
    steps = f"steps: {', '.join(said)}" if said else "no steps"
    yield f"{count_of(n_courses, 'course')} over sweeps, {steps}."
    few = sum(one.rows.group_by("model").len()["len"].lt(LEAST_VALUES).sum() for one in found)
    if few:
        yield f"{few} have fewer than {LEAST_VALUES} sweeps, in which no step can be found."


_ARTICLES = {Moved.MODEL: "a model", Moved.HOST: "the host", Moved.EITHER: "a model or the host"}


def _cells(found: Sequence[History]) -> Iterator[SweptCell]:
    for one in found:
        begins = _begins(one)
        host = dict(zip(one.sweeps, np.exp(one.host).tolist(), strict=True))
        for row in one.rows.iter_rows(named=True):
            yield SweptCell(
                model=row["model"],
                platform_key=row["platform_key"],
                workload=row["workload"],
                sweep_id=row["sweep_id"],
                started_utc=row["started_utc"],
                git_commit=row["git_commit"],
                runtime_version=row["runtime_version"],
                repeats=row["repeats"],
                latency_p50_ms=row["level_ns"] / NS_PER_MS,
                host_ratio=host[row["sweep_id"]],
                change=begins.get((row["model"], row["sweep_id"])),
            )


def _begins(one: History) -> Mapping[tuple[str, str], LevelChange]:
    """By model and sweep, the step that begins there; one of the model before one of the host."""
    found: dict[tuple[str, str], LevelChange] = {}
    for moved, step in one.steps:
        models = set(one.rows["model"]) if moved is Moved.HOST else [one.models[step.course]]
        found |= {(model, one.sweeps[step.at]): _change(moved, step) for model in models}
    return found


def _change(moved: Moved, step: LevelStep) -> LevelChange:
    ratio, low, high = map(math.exp, (step.change, step.low, step.high))
    return LevelChange(moved=moved, ratio=ratio, ratio_low=low, ratio_high=high)


def _steps(one: History) -> Iterator[SweepStep]:
    for moved, step in one.steps:
        model = None if moved is Moved.HOST else one.models[step.course]
        mine = one.rows if model is None else one.rows.filter(pl.col("model") == model)
        sweep_id = one.sweeps[step.at]
        earlier = [at for at in one.sweeps[: step.at] if at in set(mine["sweep_id"])]
        before, after = (
            mine.filter(pl.col("sweep_id") == at).row(0, named=True)
            for at in (earlier[-1], sweep_id)
        )
        yield SweepStep(
            change=_change(moved, step),
            platform_key=after["platform_key"],
            workload=after["workload"],
            model=model,
            after=earlier[-1],
            sweep_id=sweep_id,
            started_utc=after["started_utc"],
            sweeps_before=step.n_before,
            sweeps_after=step.n_after,
            differs=_differs(before, after),
        )


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
