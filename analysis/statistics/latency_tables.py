"""Tables that compare nothing: latency and memory, trainings, hosts and waits, evaluations."""

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.rounds import MeasuredRound
from fleetrank.analysis.statistics.verdicts import with_verdicts
from fleetrank.analysis.stored.cell_values import (
    banners,
    notes_on_failures,
    notes_on_figures,
    notes_on_noise,
    origin_banners,
    placement,
)
from fleetrank.analysis.stored.scope import select_stored
from fleetrank.analysis.stored.selection import STATISTIC, Selection, fits_model, matches, named
from fleetrank.analysis.stored.side_tables import EVALUATIONS, newest_evaluations, unit_of_metric
from fleetrank.analysis.tables.formats import sentences_of_reasons, value_text
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.analysis.weather import (
    MIN_BLOCKS,
    MIN_CELLS,
    MOST_DISTURBED,
    MOST_REST,
    MOST_SPREAD,
    RoundVerdict,
    Weather,
    verdict_of_rounds,
    weather_of,
)
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.inputs import IMAGE, Workload, WorkloadKind
from fleetrank.foundation.vocabulary import (
    BYTES_PER_MIB,
    NS_PER_MS,
    NS_PER_S,
    CellVerdict,
    Origin,
    Precision,
)


def latency_table(session: Session) -> Table:
    """p50, p95 and p99, with the interval of the p50 over processes."""
    scope = session.cells
    columns = {
        "latency_p50_ms": "latency_ns",
        "latency_low_ms": "latency_low_ns",
        "latency_high_ms": "latency_high_ns",
        "latency_p95_ms": "latency_p95_ns",
        "latency_p99_ms": "latency_p99_ns",
    }
    judged = with_verdicts(session)
    shown = judged.select(
        "model", "platform_key", *_scaled(columns, NS_PER_MS),
        "verdict", "repeats_spread", "n_repeats", "sample_kind", "runtime_version", "flags",
        STATISTIC, placement(),
        pl.col("interval_reason").alias("reason"),
    )  # fmt: skip
    matrix = latency_matrix(judged)
    table = Table(
        title="Latency",
        frame=shown,
        notes=scope.notes,
        explanation=explained("latency/latency"),
        brief=Table(
            title="Latency",
            frame=matrix,
            notes=tuple(_matrix_notes(judged)),
            columns=tuple(matrix.columns),
        ),
    )
    return _of_workload(session, table)


MARKS = {CellVerdict.NOISY: " ~", CellVerdict.DOUBTFUL: " ?"}
"""Behind a figure that is not steady."""


def latency_matrix(cells: pl.DataFrame) -> pl.DataFrame:
    """Medians in ms as texts: `model`, and a column for each platform, named by its key.

    The order is that of `own_first`.

    Args:
        cells: of one workload, with their verdicts: a figure that is not steady has its mark.
    """
    marks = cells["verdict"].to_list()
    gap = "" if set(marks).isdisjoint(MARKS) else "  "
    texts = [
        None if ns is None else value_text(ns / NS_PER_MS) + MARKS.get(mark, gap)
        for ns, mark in zip(cells["latency_ns"], marks, strict=True)
    ]
    # Two cards under one name are two cells; the first stands for both.
    wide = cells.with_columns(pl.Series("ms", texts, dtype=pl.String)).pivot(
        "platform_key", index="model", values="ms", aggregate_function="first"
    )
    at = pl.col("model").cast(pl.Enum(own_first(cells, "model")))
    return wide.sort(at).select("model", *own_first(cells, "platform_key"))


def own_first(cells: pl.DataFrame, name: str) -> list[str]:
    """Models or platforms, `name` is the column, in the order of their use to the reader.

    First those with a figure that the user measured, then those on a device that has one of the
    user's models, each from the most figures to the fewest.
    """
    is_own = pl.col("origin") != Origin.IMPORTED
    models = cells.filter(is_own)["model"].implode()
    devices = cells.filter(pl.col("model").is_in(models))["device"].implode()
    found = cells.group_by(name).agg(
        is_own.any().alias("is_own"), pl.col("device").is_in(devices).any(), pl.len().alias("n")
    )
    order = found.sort("is_own", "device", "n", name, descending=[True, True, True, False])
    return order[name].to_list()


def _matrix_notes(judged: pl.DataFrame) -> Iterator[str]:
    """What the figures of the matrix are, their marks, and how wide their intervals are."""
    found = set(judged["verdict"].to_list())
    marks = [f"{mark.strip()} {verdict}" for verdict, mark in MARKS.items() if verdict in found]
    statistics = " or ".join(judged[STATISTIC].drop_nulls().unique().sort())
    yield f"In ms: {', '.join((statistics or 'statistic not stated', *marks))}."
    low, high, middle = (judged[f"latency_{one}ns"] for one in ("low_", "high_", ""))
    reach = (50 * (high - low) / middle).drop_nulls().to_numpy()
    if reach.size:
        yield (
            f"95 % intervals over processes: half-width {np.median(reach):.2g} % of the figure in "
            f"the median, {reach.max():.2g} % at most."
        )
    lacking = judged.filter(low.is_null())["interval_reason"].drop_nulls()
    yield from sentences_of_reasons(lacking.to_list(), "No interval for")


def _of_workload(session: Session, table: Table) -> Table:
    """The table with its workload in the title, and what one inference of it is."""
    workload = session.workload
    if workload == IMAGE:
        return table
    from fleetrank.analysis.statistics.language import MEANINGS  # slow to import

    if workload.kind not in MEANINGS:
        return table
    return replace(
        table,
        title=f"{table.title}, {workload}",
        explanation=(MEANINGS[workload.kind], *table.explanation),
    )


def memory_table(session: Session) -> Table:
    """Peaks above the baseline while running and while loading, with their metric."""
    scope = session.cells
    columns = {
        "peak_memory_mib": "peak_memory_bytes",
        "load_peak_memory_mib": "load_peak_memory_bytes",
    }
    reason = pl.when(pl.col("peak_memory_bytes").is_null()).then(
        pl.lit("the tool gives no memory figure")
    )
    shown = scope.cells.select(
        "model", "platform_key", *_scaled(columns, BYTES_PER_MIB),
        "memory_metric", "n_repeats", reason.alias("reason"),
    )  # fmt: skip
    metrics = ", ".join(scope.cells["memory_metric"].drop_nulls().unique().sort())
    metric = (
        f"Memory metric: {metrics or 'none'}; compare only figures of one metric and one runtime."
    )
    table = Table(
        title="Peak memory",
        frame=shown,
        notes=(*scope.notes, metric),
        explanation=explained("latency/memory"),
    )
    return _of_workload(session, table)


def coldstart_table(session: Session) -> Table:
    """Load and first inference, and the ratio of the first one to a steady inference."""
    scope = session.cells
    columns = {
        "load_ms": "load_ns",
        "first_inference_ms": "first_inference_ns",
        "latency_p50_ms": "latency_ns",
    }
    has_steady = pl.col("latency_ns") > 0
    ratio = pl.when(has_steady).then(pl.col("first_inference_ns") / pl.col("latency_ns"))
    reason = pl.when(pl.col("load_ns").is_null() | pl.col("first_inference_ns").is_null()).then(
        pl.lit("the tool does not time loading")
    )
    shown = scope.cells.select(
        "model", "platform_key", *_scaled(columns, NS_PER_MS),
        STATISTIC, ratio.alias("first_to_steady"), "n_repeats", reason.alias("reason"),
    )  # fmt: skip
    cache = "The file may be in the page cache: load_ms does not measure a cold disk."
    table = Table(
        title="Cold start",
        frame=shown,
        notes=(*scope.notes, cache),
        explanation=explained("latency/coldstart"),
    )
    return _of_workload(session, table)


def _scaled(columns: dict[str, str], divisor: float) -> list[pl.Expr]:
    return [(pl.col(source) / divisor).alias(name) for name, source in columns.items()]


# Part `training`: what one step of training takes, beside an inference of the same batch.

_VALUE_BYTES = 4
"""A step of training is exported in fp32."""
_KEY = ("model", "platform_key")
_COLUMNS = (
    *_KEY, "workload", "optimizer", "step_p50_ms", "step_low_ms", "step_high_ms", "samples_per_s",
    "over_inference", "peak_memory_mib", "weights_mib", "gradients_mib", "optimizer_mib",
    "rest_mib", "steps_per_s", "gflops_per_s", "n_repeats", "flags",
)  # fmt: skip


def training_table(session: Session) -> Table:
    """One row for each model, platform and workload of training.

    Raises:
        NoDataError: no selected row is a step of training.
    """
    workloads = [
        one for one in map(Workload.parse, session.workloads) if one.kind is WorkloadKind.TRAIN
    ]
    if not workloads:
        raise NoDataError(
            "the selected rows have no step of training",
            "measure one: `workloads: [image, train@8]` with runtime torch in a sweep",
        )
    found = {one: of for one in workloads if (of := session.cells_of(str(one))) is not None}
    if not found:
        raise NoDataError(
            f"every attempt of {named([str(one) for one in workloads])} failed or is left out",
            "see the table `trust` with `part=dropped` and `workload`",
        )
    shown = pl.concat([_steps(session, of, one) for one, of in found.items()])
    every = pl.concat(found.values(), how="diagonal")
    attempts = pl.concat([session.of_workload(str(one)).attempts for one in workloads])
    known = [of for one in workloads if (of := session.unlimited.cells_of(str(one))) is not None]
    measured = pl.concat(known, how="diagonal")
    count = f"{count_of(shown.height, 'cell')}, {count_of(len(workloads), 'workload')}."
    return Table(
        title="Steps of training",
        frame=shown.select(_COLUMNS).sort(*_KEY, maintain_order=True),
        notes=(
            *banners(every),
            count,
            *session.dropped_notes(map(str, workloads)),
            *notes_on_figures(every),
            *notes_on_failures(attempts, measured),
            *notes_on_noise(every),
        ),
        explanation=explained("latency/training"),
    )


def _steps(session: Session, cells: pl.DataFrame, workload: Workload) -> pl.DataFrame:
    inference = _inference(session, workload)
    over = pl.col("step_p50_ms") / pl.col("inference_ms")
    steps = _figures(cells, workload).join(inference, on=_KEY, how="left")
    return steps.with_columns(over_inference=over)


def _figures(cells: pl.DataFrame, workload: Workload) -> pl.DataFrame:
    latency_s = pl.when(pl.col("latency_ns") > 0).then("latency_ns") / NS_PER_S
    weights = pl.col("parameters") * _VALUE_BYTES / BYTES_PER_MIB
    n_states = 0 if workload.optimizer is None else workload.optimizer.states
    peak = pl.col("peak_memory_bytes") / BYTES_PER_MIB
    return cells.select(
        *_KEY,
        pl.lit(str(workload)).alias("workload"),
        pl.lit(workload.optimizer, pl.String).alias("optimizer"),
        (pl.col("latency_ns") / NS_PER_MS).alias("step_p50_ms"),
        (pl.col("latency_low_ns") / NS_PER_MS).alias("step_low_ms"),
        (pl.col("latency_high_ns") / NS_PER_MS).alias("step_high_ms"),
        (1.0 / latency_s).alias("steps_per_s"),
        (pl.col("batch") / latency_s).alias("samples_per_s"),
        (pl.col("flops") * pl.col("batch") / latency_s / 1e9).alias("gflops_per_s"),
        weights.alias("weights_mib"),
        weights.alias("gradients_mib"),
        (n_states * weights).alias("optimizer_mib"),
        peak.alias("peak_memory_mib"),
        (peak - (2 + n_states) * weights).alias("rest_mib"),
        "n_repeats", "flags",
    )  # fmt: skip


def _inference(session: Session, workload: Workload) -> pl.DataFrame:
    """Median milliseconds of one inference of as much, by model and platform."""
    kind = WorkloadKind.IMAGE if workload.length is None else WorkloadKind.PREFILL
    inference = str(Workload(kind=kind, length=workload.length))
    if (cells := session.cells_of(inference)) is None:
        return pl.DataFrame(schema=dict.fromkeys(_KEY, pl.String) | {"inference_ms": pl.Float64})
    # Of several weights or options it is not known which one the step is of.
    return cells.filter(pl.len().over(_KEY) == 1).select(
        *_KEY, (pl.col("latency_ns") / NS_PER_MS).alias("inference_ms")
    )


# What the host did while models took turns, and how long attempts waited for their device.


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What the host did in a round, or in all rounds of a sweep; `None` has its `reason`."""

    level: str
    sweep_id: str
    device: str
    verdict: RoundVerdict
    began_utc: datetime | None
    n_rounds: int | None = None
    n_disturbed: int | None = None
    n_models: int
    n_blocks: int
    host_percent: float | None
    spread_percent: float | None
    jump_percent: float | None
    rest_percent: float | None
    reason: str | None = None


def host_table(session: Session) -> Table:
    """What the host did in the rounds of the selected sweeps; no row if no model took turns."""
    rounds = session.rounds.rounds
    rows: list[HostState] = []
    notes: list[str] = []
    for (sweep, device), group in itertools.groupby(sorted(rounds, key=_place), key=_place):
        found = [(one, weather_of(one)) for one in group]
        whole = _of_sweep(found)
        rows += [whole, *_of_rounds(found)]
        notes.append(
            f"Comparisons of {sweep} on {device}: {whole.verdict}, {whole.n_disturbed} of "
            f"{count_of(len(found), 'round')} disturbed."
        )
    if not rounds:
        notes.append("No selected model took turns: `rounds: {}` in a sweep file lets them.")
    return Table.of(
        HostState,
        rows,
        title="Host",
        notes=(*origin_banners(_attempts(session)), *notes[:3]),
        explanation=explained(
            "trust/host",
            {
                "most_spread": 100 * MOST_SPREAD,
                "most_rest": 100 * MOST_REST,
                "min_cells": MIN_CELLS,
                "min_blocks": MIN_BLOCKS,
                "most_disturbed": 100 * MOST_DISTURBED,
            },
        ),
    )


def _place(one: MeasuredRound) -> tuple[str, str]:
    return one.sweep_id, one.device


_Found = Sequence[tuple[MeasuredRound, Weather]]


def _of_sweep(found: _Found) -> HostState:
    first, _ = found[0]
    jumps = [one.jump for _, one in found if one.jump is not None]
    above = [one.above for one, _ in found if one.above is not None]
    return HostState(
        level="sweep",
        sweep_id=first.sweep_id,
        device=first.device,
        verdict=verdict_of_rounds([weather.verdict for _, weather in found]),
        began_utc=min((one.began_utc for one, _ in found if one.began_utc), default=None),
        n_rounds=len(found),
        n_disturbed=sum(one.verdict is RoundVerdict.DISTURBED for _, one in found),
        n_models=len({cell for one, _ in found for cell in one.cells}),
        n_blocks=sum(one.blocks.size for one, _ in found),
        host_percent=100 * float(np.std(above, ddof=1)) if len(above) > 1 else None,
        spread_percent=_median([one.spread for _, one in found]),
        jump_percent=_percent(max(jumps, default=None)),
        rest_percent=_median([one.rest for _, one in found]),
    )


def _of_rounds(found: _Found) -> Iterator[HostState]:
    for one, weather in found:
        yield HostState(
            level="round",
            sweep_id=one.sweep_id,
            device=one.device,
            verdict=weather.verdict,
            began_utc=one.began_utc,
            n_models=len(one.cells),
            n_blocks=one.blocks.size,
            host_percent=_percent(one.above),
            spread_percent=_percent(weather.spread),
            jump_percent=_percent(weather.jump),
            rest_percent=_percent(weather.rest),
            reason=weather.reason,
        )


def _median(logs: Sequence[float | None]) -> float | None:
    known = [value for value in logs if value is not None]
    return _percent(float(np.median(known))) if known else None


def _percent(log: float | None) -> float | None:
    return None if log is None else 100 * math.expm1(log)


LEAST_WAIT_S = 1.0
"""A shorter wait is that of a process that starts."""


def waits_table(session: Session) -> Table:
    """Waits of each sweep on a device, the longest first; only attempts that state theirs count."""
    waited = pl.col("waited_s")
    attempts = _attempts(session)
    found = (
        attempts.filter(waited.is_not_null())
        .group_by("sweep_id", "device")
        .agg(
            pl.len().cast(pl.Int64).alias("n_attempts"),
            (waited >= LEAST_WAIT_S).sum().cast(pl.Int64).alias("n_waited"),
            waited.filter(waited >= LEAST_WAIT_S).sum().round(1).alias("waited_s"),
            waited.max().round(1).alias("longest_s"),
        )
        .sort("waited_s", "sweep_id", "device", descending=[True, False, False])
        .collect()
    )
    n_waited, n_attempts = int(found["n_waited"].sum()), int(found["n_attempts"].sum())
    note = f"{n_waited} of {count_of(n_attempts, 'attempt')} waited for their device."
    notes = (*origin_banners(attempts), note)
    return Table(
        title="Waits",
        frame=found,
        notes=notes,
        explanation=explained("trust/waits", {"least_wait_s": LEAST_WAIT_S}),
    )


def _attempts(session: Session) -> pl.LazyFrame:
    selection = replace(session.selection, workload=str(session.workload))
    return select_stored(session.frame, selection)


# Table `eval`: how good models are on the user's data, beside what is published.

_SHOWN = (
    "model", "weights", "task", "data", "quality_metric", "quality", "unit", "flags",
    "quality_low", "quality_high", "baseline", "published", "runtime", "precision", "device",
    "strategy", "window_tokens", "prompts", "tokenizer", "n_items", "n_bytes", "data_sha256",
    "tokenizer_sha256",
)  # fmt: skip
_DIGITS = 12
"""Of a checksum, as listings show them."""


def evaluations_table(session: Session) -> Table:
    """The newest evaluation of each model, data set, setting, runtime and device.

    Raises:
        NoDataError: nothing was evaluated, or nothing that the selection names.
    """
    found = _evaluations(session)
    units = pl.Series("unit", map(unit_of_metric, found["quality_metric"]), dtype=pl.String)
    shown = (
        found.with_columns(units)
        .select(_SHOWN)
        .with_columns(pl.col("data_sha256", "tokenizer_sha256").str.head(_DIGITS))
    )
    n_seeded = found.filter(pl.col("flags").list.contains("seeded"))["evaluation_id"].n_unique()
    notes = [
        f"{count_of(found['evaluation_id'].n_unique(), 'evaluation')} of "
        f"{count_of(found['model'].n_unique(), 'model')}; compare rows of equal data_sha256 only."
    ]
    if n_seeded:
        notes.append(
            f"{count_of(n_seeded, 'evaluation')} used random weights: the figures show no quality."
        )
    return Table(
        title="Evaluations",
        frame=shown,
        notes=tuple(notes),
        explanation=explained("eval/evaluations"),
    )


def _evaluations(session: Session) -> pl.DataFrame:
    """The newest selected ones."""
    stored = session.side(EVALUATIONS)
    found = newest_evaluations(stored).filter(_is_selected(session.selection))
    if found.is_empty():
        raise NoDataError(
            "no evaluation is stored" if stored.is_empty() else "no evaluation fits the selection",
            "run `fleetrank eval ppl`, `eval smallbench` or `eval images`",
        )
    return found


_SAME_ITEMS = (
    "model", "card_sha256", "weights", "weights_sha256", "task", "data", "data_sha256", "prompts",
    "tokenizer", "tokenizer_sha256", "strategy", "window_tokens", "stride_tokens", "item_limit",
    "preprocessing", "quality_metric", "runtime", "backend", "device",
)  # fmt: skip


def precision_quality_table(session: Session) -> Table:
    """What a precision costs in quality: the same items in it and in fp32, by the same runtime.

    Raises:
        NoDataError: no selected evaluation is stored in fp32 and in another precision.
    """
    items = _evaluations(session).filter(
        pl.any_horizontal(pl.col("right_items", "window_losses").is_not_null())
    )
    is_plain = pl.col("precision") == Precision.FP32
    pairs = items.filter(~is_plain).join(
        items.filter(is_plain), on=_SAME_ITEMS, suffix="_fp32", nulls_equal=True
    )
    if pairs.is_empty():
        raise NoDataError(
            "no evaluation of the same items in fp32 and in another precision by one runtime",
            "run `fleetrank eval images` or `fleetrank eval ppl` in both precisions",
        )
    changes = [
        _change(row["right_items_fp32"], row["right_items"], row["n_items"])
        if row["right_items"] is not None
        else _loss_change(row["window_losses_fp32"], row["window_losses"])
        for row in pairs.iter_rows(named=True)
    ]
    frame = pairs.select(
        "model", "runtime", "precision", "quality_metric", "quality", "quality_fp32", "n_items",
        "data", "device", "backend", "recipe",
    ).hstack(pl.DataFrame(changes, infer_schema_length=None))  # fmt: skip
    return Table(
        title="Quality beside fp32",
        frame=frame.sort("model", "runtime", "precision", "recipe", "quality_metric"),
        notes=(f"{count_of(len(frame), 'pair')} of evaluations over the same items.",),
        explanation=explained("eval/precisions"),
    )


def _change(before: str, after: str, n: int) -> dict[str, float | int | str | None]:
    """The difference in points, its interval, and how many items changed each way."""
    # SciPy takes longer to load than the other tables of this module take.
    from fleetrank.analysis.arrays.significance import paired_share_difference

    first, second = (
        np.unpackbits(np.frombuffer(bytes.fromhex(one), dtype=np.uint8))[:n].astype(bool)
        for one in (before, after)
    )
    n_lost, n_gained = int((first & ~second).sum()), int((second & ~first).sum())
    difference, low, high = paired_share_difference(n_lost, n_gained, n)
    return {
        "difference": 100 * difference, "difference_low": 100 * low, "difference_high": 100 * high,
        "unit": "points", "ratio": None, "n_lost": n_lost, "n_gained": n_gained,
    }  # fmt: skip


def _loss_change(before: str, after: str) -> dict[str, float | int | str | None]:
    """The difference of the loss of a token, its interval, and the ratio of the perplexities."""
    from fleetrank.analysis.arrays.significance import paired_loss_difference

    first, second = (np.array(json.loads(one)) for one in (before, after))
    found = paired_loss_difference(second[:, 0] - first[:, 0], first[:, 1])
    difference, low, high = (None if math.isnan(one) else one for one in found)
    return {
        "difference": difference, "difference_low": low, "difference_high": high,
        "unit": "nats per token", "ratio": math.exp(found[0]), "n_lost": None, "n_gained": None,
    }  # fmt: skip


def _is_selected(selection: Selection) -> pl.Expr:
    is_meant = pl.lit(value=True)
    if selection.models:
        is_meant = is_meant & fits_model(*selection.models)
    if selection.source is not None:
        is_meant = is_meant & matches("device", selection.source)
    for name, wanted in (
        *((name, getattr(selection, name)) for name in ("runtime", "precision", "family")),
        ("tier", selection.source_tier),
        *selection.where,
    ):
        if wanted is not None:
            is_known = name in EVALUATIONS.schema
            is_meant = is_meant & (pl.col(name) == wanted if is_known else pl.lit(value=False))
    return is_meant
