"""What the reader of every table must know about its cells, in a few sentences."""

import polars as pl

from fleetrank.analysis.stopping_rule import StoppingRule
from fleetrank.analysis.stored.cell_values import MIN_REPEATS, NOISY_SHARE, TAKEN_SHARE, is_noisy
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.foundation.wording import count_of, few_of
from fleetrank.foundation.workload import IMAGE

_UNREAL = {
    "simulated": "SIMULATED DATA",
    "virtual": "DATA FROM VIRTUAL DEVICES",
    "emulated": "DATA FROM EMULATED DEVICES",
}
_NAMED = 6
"""A sentence names at most this many devices."""


def notes_on_cells(cells: pl.DataFrame) -> tuple[str, ...]:
    """What the cells are: their origin and number, and what their figures count."""
    return (*banners(cells), _counts(cells), *_stopped(cells), *notes_on_figures(cells))


def _stopped(cells: pl.DataFrame) -> tuple[str, ...]:
    """A note on cells whose repeats ended when a question was decided."""
    texts = cells["stopping_rule"].drop_nulls()
    rules = {rule for text in texts.unique() if (rule := StoppingRule.parse(text)) is not None}
    if not rules:
        return ()
    questions = " or ".join(sorted({rule.question.value for rule in rules}))
    return (
        f"{count_of(texts.len(), 'cell')} measured until decided ({questions}): the decisions hold "
        "at every look; differences between models that stopped early are a little too large. A "
        "model with more rounds met other states of the host: compare models by `faster`, which "
        "counts the rounds of both, and not by these medians.",
    )


def notes_on_figures(cells: pl.DataFrame) -> tuple[str, ...]:
    """A note each if latencies, or figures of memory, do not count the same on all devices."""
    return (*_statistics(cells), *_memory(cells))


def banners(cells: pl.DataFrame) -> tuple[str, ...]:
    """A note for each origin that is not a real device; `cells` has `origin` and `device`."""
    parts = {name: cells.filter(pl.col("origin") == name) for name in _UNREAL}
    return tuple(
        f"{_UNREAL[name]}: {_rows_of(part, cells)} ({devices_of(part)})."
        for name, part in parts.items()
        if part.height
    )


def origin_banners(attempts: pl.LazyFrame) -> tuple[str, ...]:
    """The banners of stored attempts, in place of those of cells."""
    return banners(attempts.select("origin", "device").collect())


def _rows_of(part: pl.DataFrame, cells: pl.DataFrame) -> str:
    """How many of the rows of a table are of one origin."""
    n = cells.height
    return f"all {count_of(n, 'row')}" if part.height == n else f"{part.height} of {n} rows"


def _memory(cells: pl.DataFrame) -> tuple[str, ...]:
    """A note if devices count memory in different ways, which a ratio cannot correct."""
    counted_by = _devices_by(cells, "memory_metric")
    if counted_by is None:
        return ()
    return (
        "Devices count peak memory in different ways. FRM uses the figures without correction: "
        f"{counted_by}.",
    )


def _statistics(cells: pl.DataFrame) -> tuple[str, ...]:
    """A note if latencies are different statistics."""
    stated_by = _devices_by(cells, STATISTIC)
    return () if stated_by is None else (f"Latencies are different statistics: {stated_by}.",)


def _devices_by(cells: pl.DataFrame, fact: str) -> str | None:
    """The devices by a fact of their cells; `None` if all that state it have the same."""
    known = cells.drop_nulls(fact)
    kinds = sorted(known[fact].unique())
    if len(kinds) < 2:
        return None
    parts = (known.filter(pl.col(fact) == kind) for kind in kinds)
    return "; ".join(
        f"{kind} on {devices_of(part)}" for kind, part in zip(kinds, parts, strict=True)
    )


def devices_of(cells: pl.DataFrame) -> str:
    """The devices of some cells; only the first few have their names listed."""
    return few_of(sorted(cells["device"].unique()), _NAMED)


def _counts(cells: pl.DataFrame) -> str:
    """How many models, platforms, devices and repeats a table uses."""
    seeds = ", ".join(str(seed) for seed in sorted(cells["seed"].drop_nulls().unique()))
    repeats = sorted(cells["n_repeats"].unique())
    workloads = ", ".join(sorted(cells["workload"].drop_nulls().unique()))
    of_workload = "" if workloads in {"", str(IMAGE)} else f"Workload {workloads}: "
    text = (
        f"{of_workload}{count_of(cells['model'].n_unique(), 'model')}, "
        f"{count_of(cells['platform_key'].n_unique(), 'platform')}, "
        f"{count_of(cells['device_model'].n_unique(), 'device model')}; "
        f"seeds of the sweeps: {seeds or 'not recorded'}; "
        f"repeats per cell: {'-'.join(str(n) for n in sorted({repeats[0], repeats[-1]}))}"
    )
    few = int((cells["n_repeats"] < MIN_REPEATS).sum())
    if few:
        text += (
            f"; {few} of {cells.height} rows have fewer than {MIN_REPEATS} repeats and no interval"
        )
    return f"{text}."


def notes_on_failures(attempts: pl.LazyFrame, cells: pl.DataFrame) -> tuple[str, ...]:
    """A note on cells without a valid attempt, with the models that have no other cell."""
    place = ("model", "platform_key", pl.col("workload").fill_null(str(IMAGE)))
    tried = attempts.select(place).unique().collect()
    missing = tried.height - cells.select(place).unique().height
    if not missing:
        return ()
    gone = sorted({*tried["model"]} - {*cells["model"]})
    models = f", all cells of {count_of(len(gone), 'model')}: {few_of(gone, _NAMED)}"
    return (
        f"Dropped: {count_of(missing, 'cell')} with failed attempts only{models if gone else ''} "
        "(table `trust` with `part=dropped`).",
    )


def with_one_cell(rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The rows of a side table whose model has one cell on its platform, and a note on the others.

    Args:
        rows: joined with the cells of their model, platform and workload; `cell_key` is of the
            side table, `measured_cell` of the cells.
    """
    place = ("model", "platform_key", "workload")
    is_one = pl.struct("cell_key", "measured_cell").n_unique().over(place) == 1
    several = rows.filter(~is_one).select("model", "platform_key").unique().sort(pl.all())
    if several.is_empty():
        return rows, ()
    names = few_of([f"{model} on {platform}" for model, platform in several.iter_rows()], _NAMED)
    note = f"Dropped: {names}, measured there with different weights or exporter options."
    return rows.filter(is_one), (note,)


def is_banner(note: str) -> bool:
    """Whether a note of a table says that some of its devices are not real."""
    return note.startswith(tuple(_UNREAL.values()))


def notes_on_noise(cells: pl.DataFrame) -> tuple[str, ...]:
    """A note on noisy cells."""
    noisy = cells.filter(is_noisy()).height
    if not noisy:
        return ()
    return (
        f"{noisy} of {cells.height} rows are noisy: two of their processes differ by more than "
        f"{100 * NOISY_SHARE:.0f} % on average, or other programs used more than "
        f"{100 * TAKEN_SHARE:.0f} % of their cores.",
    )
