"""One record for each run: a model with its weights on one platform, at every batch and length.

Source of the fields: the StandardMetrics record of the evaluation study, with the unit in each
name. A figure that was not measured is null.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.summary.evaluated import evaluated
from fleetrank.analysis.statistics.summary.summary_fields import (
    ARCHITECTURE,
    LONG,
    MANY_SAMPLES,
    SCHEMA,
    SHORT,
)
from fleetrank.analysis.stored.load import valid_attempts
from fleetrank.analysis.stored.side.evaluations import EVALUATIONS
from fleetrank.foundation.inputs.workload import Workload, WorkloadKind
from fleetrank.foundation.units import NS_PER_MS, NS_PER_S

Record = dict[str, object]
Architectures = Mapping[str, Mapping[str, int | float]]
"""Checksum of a card to its values of `ARCHITECTURE`."""

_RUN = ("model", "platform", "card_sha256", "weights_id")
_CELL = ("model", "platform_key", "cell_key")
_OF_ROWS = (
    "git_commit", "fleetrank_version", "reserved_memory_bytes", "artifact_bytes",
)  # fmt: skip
_SIZES = ("parameters", "weight_bytes", "artifact_bytes")
_PASSES = (WorkloadKind.PREFILL, WorkloadKind.ENCODE)
_NO_CARDS: Architectures = MappingProxyType({})


def run_summaries(session: Session, architectures: Architectures = _NO_CARDS) -> pl.DataFrame:
    """The summary of every selected run, with exactly the columns of `summary_fields.FIELDS`.

    Args:
        session: the selected rows. Without a workload in its selection, all of them count.
        architectures: of the cards that are known; the others have nulls.

    Raises:
        NoDataError: no row matches the selection.
    """
    cells = session.once(summary_cells)
    evaluations = session.side(EVALUATIONS)
    records = [
        _record(frame, architectures, evaluations)
        for frame in cells.partition_by(_RUN, maintain_order=True)
    ]
    return pl.DataFrame(records, schema=SCHEMA)


def summary_cells(session: Session) -> pl.DataFrame:
    """The cells of every selected workload, sorted by run; raises like `run_summaries`."""
    parts = [part for name in session.chosen_workloads for part in _of_workload(session, name)]
    if not parts:
        raise NoDataError(
            "no successful measurement matches the selection.",
            "widen the selection (`include_simulated=true` adds virtual and simulated devices)",
        )
    platform = pl.col("platform_key").str.replace(r"/b\d+/t", "/b*/t").alias("platform")
    return pl.concat(parts, how="diagonal").with_columns(platform).sort(_RUN)


def _of_workload(session: Session, name: str) -> Iterator[pl.DataFrame]:
    if (cells := session.cells_of(name)) is None:
        return
    workload = Workload.parse(name)
    more = (
        valid_attempts(session.of_workload(name).attempts)
        .sort("started_utc")
        .group_by(_CELL)
        .agg(pl.col(column).drop_nulls().last() for column in _OF_ROWS)
        .collect()
    )
    length = pl.lit(workload.length, dtype=pl.Int64).alias("length")
    kind = pl.lit(workload.kind.value).alias("kind")
    of_step = pl.lit(workload.batch, dtype=pl.Int64).alias("step_batch")
    is_alone = pl.lit(workload.has_model_alone).alias("has_model_alone")
    yield cells.join(more, on=_CELL, how="left").with_columns(length, kind, of_step, is_alone)


def _record(cells: pl.DataFrame, architectures: Architectures, evaluations: pl.DataFrame) -> Record:
    rows = cells.sort("started_utc").to_dicts()
    newest = rows[-1]
    quality, figures = evaluated(evaluations, newest), _figures(rows)
    return {
        **{name: _newest(rows, name) for name in SCHEMA if name in newest},
        **{name: _newest(sorted(rows, key=_nearness), name) for name in _SIZES},
        "sweep_ids": sorted({str(row["sweep_id"]) for row in rows}),
        "started_utc": rows[0]["started_utc"],
        **_architecture(architectures.get(str(newest["card_sha256"]), {})),
        **quality.fields,
        **figures,
        "flags": sorted(quality.flags.union(_flags(figures))),
    }


def _newest(rows: list[Record], name: str) -> object:
    """The last value that is known; an older row can have facts that a newer one lacks."""
    return next((row[name] for row in reversed(rows) if row[name] is not None), None)


def _nearness(row: Record) -> tuple[bool | int, ...]:
    """The larger, the nearer is the row's file to the model alone, as `peak_memory_bytes` has it.

    First the files without a memory and without training, of those the ones that read no segment,
    then one pass at batch 1 over the longest input.
    """
    kind = row["kind"]
    is_pass = kind in {WorkloadKind.IMAGE, *_PASSES}
    return (
        bool(row["has_model_alone"]),
        kind != WorkloadKind.SEGMENT,
        is_pass,
        row["batch"] == 1,
        _whole(row, "length") or 0,
    )


def _architecture(known: Mapping[str, int | float]) -> Record:
    return {one.name: known.get(one.name) for one in ARCHITECTURE}


def _figures(rows: list[Record]) -> Record:
    image = _first(rows, (WorkloadKind.IMAGE,), batch=1)
    short = _first(rows, _PASSES, batch=1, length=SHORT)
    long = _first(rows, _PASSES, batch=1, length=LONG)
    images = _first(rows, (WorkloadKind.IMAGE,), batch=MANY_SAMPLES)
    tokens = _first(rows, _PASSES, batch=MANY_SAMPLES, length=LONG)
    step = _longest(rows, (WorkloadKind.DECODE,))
    train = min(
        (row for row in rows if row["kind"] == WorkloadKind.TRAIN),
        key=lambda row: _number(row, "step_batch") or 0,
        default=None,
    )
    single, batch = image or _longest(rows, _PASSES), images or tokens
    used = [row for row in (image, short, long, images, tokens, step, train) if row is not None]
    return {
        **_latency("image", image), **_latency(f"seq{SHORT}", short),
        **_latency(f"seq{LONG}", long),
        "step_latency_ms": _ms(step, "latency_ns"),
        "step_context": _value(step, "length"),
        "images_per_s": _per_s(images, MANY_SAMPLES),
        "tokens_per_s": _per_s(tokens, MANY_SAMPLES * LONG),
        "train_step_ms": _ms(train, "latency_ns"),
        "train_batch": _value(train, "step_batch"),
        "flops": _whole(single, "flops"),
        "flops_method": _value(single, "flops_method"),
        "energy_mj": _number(single, "energy_mj"),
        "memory_metric": _value(single or batch, "memory_metric"),
        "peak_memory_bytes": _whole(single, "peak_memory_bytes"),
        "batch_peak_memory_bytes": _whole(batch, "peak_memory_bytes"),
        "batch_reserved_memory_bytes": _whole(batch, "reserved_memory_bytes"),
        "state_bytes": _whole(step or single, "state_bytes"),
        "n_repeats": min((_whole(row, "n_repeats") or 0 for row in used), default=None),
        "flags": sorted({flag for row in used for flag in _flags(row)}),
    }  # fmt: skip


def _of_kinds(rows: Iterable[Record], kinds: tuple[WorkloadKind, ...]) -> Iterator[Record]:
    return (row for row in rows if row["kind"] in kinds)


def _first(
    rows: list[Record], kinds: tuple[WorkloadKind, ...], *, batch: int, length: int | None = None
) -> Record | None:
    """The newest cell of these kinds, batch and length."""
    found = [
        row for row in _of_kinds(rows, kinds) if (row["batch"], row["length"]) == (batch, length)
    ]
    return found[-1] if found else None


def _longest(rows: list[Record], kinds: tuple[WorkloadKind, ...]) -> Record | None:
    """The cell of these kinds at batch 1 with most tokens."""
    found = [row for row in _of_kinds(rows, kinds) if row["batch"] == 1]
    return max(found, key=lambda row: _number(row, "length") or 0, default=None)


def _latency(name: str, cell: Record | None) -> Record:
    columns = {"": "latency_ns", "_low": "latency_low_ns", "_high": "latency_high_ns"}
    columns |= {f"_{one}": f"latency_{one}_ns" for one in ("p95", "p99")}
    return {f"{name}_latency{part}_ms": _ms(cell, column) for part, column in columns.items()}


def _value(cell: Record | None, column: str) -> object:
    return None if cell is None else cell[column]


def _number(cell: Record | None, column: str) -> float | None:
    value = _value(cell, column)
    return float(value) if isinstance(value, int | float) else None


def _whole(cell: Record | None, column: str) -> int | None:
    """A median of two whole numbers can have a half."""
    value = _number(cell, column)
    return None if value is None else round(value)


def _ms(cell: Record | None, column: str) -> float | None:
    value = _number(cell, column)
    return None if value is None else value / NS_PER_MS


def _per_s(cell: Record | None, n_items: int) -> float | None:
    latency_ns = _number(cell, "latency_ns")
    return n_items * NS_PER_S / latency_ns if latency_ns else None


def _flags(cell: Record) -> list[str]:
    flags = cell["flags"]
    return list(map(str, flags)) if isinstance(flags, list) else []
