"""The quality fields of a run's summary, from the side table `evaluations`."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

TASKS = ("sst2", "rte", "boolq", "mrpc")
"""SmallBench."""
_OF_TEXT = ("perplexity", "bits_per_byte", "token_top1", "token_top5")
_OF_IMAGES = ("top1", "top5")
CARD = ("model", "card_sha256", "runtime", "precision")
"""An evaluation of these counts for a run of the same."""
SEEDED = "seeded"
"""Flag of an evaluation of random weights."""
_STRATEGIES = ("vanilla", "window", "hmt")
"""Ways to read a text, the one to prefer first. `hmt` is followed by the sizes of its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What evaluations say of one run.

    Attributes:
        fields: the quality fields of the summary, but for the published accuracy.
        flags: of the evaluations behind them.
    """

    fields: dict[str, object]
    flags: frozenset[str]


def evaluated(evaluations: pl.DataFrame, run: Mapping[str, object]) -> Evaluated:
    """Figures of the run's card in its runtime and precision, on any device.

    Latency does not depend on the values of weights, so figures of other weights count too, and
    `quality_weights` names them. Those of seeded weights count only if seeded weights were
    measured and no others were evaluated. `_chosen` says which evaluation of a task counts.

    Args:
        evaluations: rows of `side.evaluations.EVALUATIONS`.
        run: `model`, `card_sha256`, `runtime`, `precision` and `weights_id`.
    """
    mine = evaluations.filter(pl.col(name) == pl.lit(run[name], pl.String) for name in CARD)
    trained = mine.filter(~pl.col("flags").list.contains(SEEDED).fill_null(value=False))
    if not trained.is_empty() or not str(run["weights_id"]).startswith(SEEDED):
        mine = trained
    tasks = {str(name): _chosen(frame) for (name,), frame in mine.group_by("task")}
    text, images = tasks.get("ppl"), tasks.get("images")
    bench = {task: tasks.get(task) for task in TASKS}
    known = [frame for frame in (text, images, *bench.values()) if frame is not None]
    weights = sorted({str(name) for frame in known for name in frame["weights"]})
    fields = {
        **{name: _metric(text, name) for name in _OF_TEXT},
        "text": _fact(text, "data"),
        "quality_strategy": _fact(text, "strategy"),
        "quality_window_tokens": _fact(text, "window_tokens"),
        "quality_stride_tokens": _fact(text, "stride_tokens"),
        **{f"{task}_acc": _metric(frame, "acc") for task, frame in bench.items()},
        "smallbench_acc": _mean(list(bench.values())),
        **{name: _metric(images, name) for name in _OF_IMAGES},
        "quality_weights": ", ".join(weights) or None,
    }
    flags = (flag for frame in known for flag in frame["flags"].explode().drop_nulls())
    return Evaluated(fields=fields, flags=frozenset(flags))


def _chosen(frame: pl.DataFrame) -> pl.DataFrame:
    """The metrics of one of the evaluations of a task.

    One of all items before a limited one, then the strategy in the order of `_STRATEGIES`, then
    the longest window, then the newest. A figure of another strategy or window is not the same
    quantity, so a new trial of one must not replace the figure of a summary.
    """
    strategy = pl.col("strategy").str.extract(r"^([a-z]+)")
    best = frame.sort(
        pl.col("item_limit").is_not_null(),
        strategy.replace_strict(_STRATEGIES, range(len(_STRATEGIES)), default=len(_STRATEGIES)),
        pl.col("window_tokens"),
        pl.col("finished_utc"),
        descending=[False, False, True, True],
        nulls_last=True,
    )["evaluation_id"][0]
    return frame.filter(pl.col("evaluation_id") == best)


def _fact(frame: pl.DataFrame | None, name: str) -> object:
    return None if frame is None else frame[name][0]


def _metric(frame: pl.DataFrame | None, name: str) -> float | None:
    if frame is None:
        return None
    found = frame.filter(pl.col("quality_metric") == name)["quality"]
    return found[0] if found.len() else None


def _mean(bench: list[pl.DataFrame | None]) -> float | None:
    """Of the accuracies on all four tasks with all their items."""
    whole = [
        _metric(frame, "acc")
        for frame in bench
        if frame is not None and frame["item_limit"].is_null().all()
    ]
    values = [value for value in whole if value is not None]
    return sum(values) / len(TASKS) if len(values) == len(TASKS) else None
