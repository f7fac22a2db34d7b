"""The process medians of the models on one platform, and which pairs of models are compared."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.load import valid_attempts
from fleetrank.analysis.stored.name_patterns import matches
from fleetrank.analysis.stored.selection import Selection, setting

NEAR = 0.2
"""Medians further apart than this are compared only if two models are named: repeats of one model
are flagged from 15 % on, so a larger difference is clear without a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSample:
    """Processes of one model on one platform, (n,) each; `runs` names sweep and repeat."""

    platform: str
    model: str
    runs: tuple[str, ...]
    latency: Floats
    accuracy: Floats


def model_pairs(session: Session) -> Iterator[tuple[ModelSample, ModelSample]]:
    """The pairs of models that the settings name, or near ones, platform by platform.

    Raises the errors of `Session.comparable`.
    """
    yield from _pairs(_samples(session.compared, session.comparable.cells), session.selection)


def chosen_note(selection: Selection) -> str:
    """Which pairs are compared, as a note."""
    names = [setting(selection, name, "*") for name in ("model_a", "model_b")]
    if names != ["*", "*"]:
        return f"Pairs: {names[0]} against {names[1]}, on every platform that measured both."
    within = setting(selection, "within", NEAR)
    return f"Pairs: models whose medians on a platform lie within {100 * within:g} %."


def _samples(attempts: pl.LazyFrame, cells: pl.DataFrame) -> Iterator[list[ModelSample]]:
    """The processes, one platform at a time in order; one without a latency is left out."""
    names = cells.select("cell_key", "platform_key", "identity")
    processes = (
        valid_attempts(attempts)
        .select(
            "cell_key",
            pl.format("{} #{}", "sweep_id", "repeat").alias("run"),
            pl.col("latency_p50_ns").alias("latency"),
            pl.col("accuracy_top1").alias("accuracy"),
        )
        .drop_nulls("latency")
        .collect()
        .join(names, on="cell_key")
        .sort("platform_key", "identity", "run")
        .group_by("platform_key", "identity", maintain_order=True)
        .agg("run", "latency", "accuracy")
    )
    for platform, rows in itertools.groupby(processes.iter_rows(), key=itemgetter(0)):
        yield [
            ModelSample(
                platform=platform,
                model=model,
                runs=tuple(runs),
                latency=np.array(latency),
                accuracy=np.array(accuracy, dtype=np.float64),
            )
            for _, model, runs, latency, accuracy in rows
        ]


def _pairs(
    platforms: Iterator[list[ModelSample]], selection: Selection
) -> Iterator[tuple[ModelSample, ModelSample]]:
    wanted_a = setting(selection, "model_a", "*")
    wanted_b = setting(selection, "model_b", "*")
    within = setting(selection, "within", NEAR)
    for samples in platforms:
        if wanted_a == wanted_b == "*":
            yield from _near(samples, within)
            continue
        names = pl.DataFrame({"model": [one.model for one in samples]})
        fits = names.select(a=matches("model", wanted_a), b=matches("model", wanted_b))
        is_a, is_b = fits["a"], fits["b"]
        for (i, one), (j, other) in itertools.combinations(enumerate(samples), 2):
            if is_a[i] and is_b[j]:
                yield one, other
            elif is_a[j] and is_b[i]:
                yield other, one


def _near(
    samples: Sequence[ModelSample], within: float
) -> Iterator[tuple[ModelSample, ModelSample]]:
    medians = [float(np.median(sample.latency)) for sample in samples]
    for (i, a), (j, b) in itertools.combinations(enumerate(samples), 2):
        low, high = sorted((medians[i], medians[j]))
        if high <= low * (1 + within):
            yield a, b
