"""One record for each run: a model with its weights on one platform, at every batch and length.

Source of the fields: the StandardMetrics record of the evaluation study, with the unit in each
name. A figure that was not measured is null.
"""

import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.summary.summary_quality import CARD, Evaluated, evaluated
from fleetrank.analysis.stored.column import FLOAT, INT, STR, STRS, UTC, Column, column
from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.load import valid_attempts
from fleetrank.foundation.units import NS_PER_MS, NS_PER_S
from fleetrank.foundation.workload import Workload, WorkloadKind

MANY_SAMPLES = 32
"""Batch of the rates. Source: the evaluation study, throughput at 32 x 512 tokens."""
SHORT, LONG = 128, 512
"""Tokens of a prompt in the latencies at batch 1. Source: the evaluation study."""
_TYPES: Mapping[str, pl.DataType] = MappingProxyType(
    {"string": STR, "int": INT, "float": FLOAT, "strings": STRS, "time": UTC}
)
_GROUPS = {
    group: tuple(column(name, _TYPES[kind], doc) for name, (kind, doc) in fields.items())
    for group, fields in tomllib.loads(
        Path(__file__).with_name("summary_fields.toml").read_text(encoding="utf-8")
    ).items()
}
ARCHITECTURE = _GROUPS["architecture"]
"""From the card of a language model; null for other models, and if the card has changed since."""
FIELDS: tuple[Column, ...] = tuple(one for group in _GROUPS.values() for one in group)
SCHEMA = {one.name: one.dtype for one in FIELDS}
MEANINGS: Mapping[str, str] = MappingProxyType({one.name: one.doc for one in FIELDS})
Record = dict[str, object]
Architectures = Mapping[str, Mapping[str, int | float]]
"""Checksum of a card to its values of `ARCHITECTURE`."""
_RUN = ("model", "platform", "card_sha256", "weights_id")
_CELL = ("model", "platform_key", "cell_key")
_RECORDS = 10_000
"""Runs that become a frame at once."""
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
    cells = summary_cells(session).sort(*_RUN, "started_utc", maintain_order=True)
    evaluations = session.side(EVALUATIONS)
    of_card = evaluations.partition_by(CARD, as_dict=True)
    nothing = evaluated(evaluations.clear(), dict.fromkeys((*CARD, "weights_id")))
    runs = itertools.groupby(cells.iter_rows(named=True), key=itemgetter(*_RUN))
    frames = [pl.DataFrame(schema=SCHEMA)]
    # Records as dictionaries need ten times the memory of a frame.
    while records := [
        _record(list(rows), architectures, of_card, nothing)
        for _, rows in itertools.islice(runs, _RECORDS)
    ]:
        frames.append(pl.DataFrame(records, schema=SCHEMA))
    return pl.concat(frames)


@once_a_session
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


def _record(
    rows: list[Record],
    architectures: Architectures,
    evaluations: Mapping[tuple[object, ...], pl.DataFrame],
    nothing: Evaluated,
) -> Record:
    """Of the cells of a run, the newest one last, and the evaluations by `CARD`."""
    newest = rows[-1]
    card = tuple(newest[name] for name in CARD)
    # A run without a card has no evaluation, also if one without a card is stored.
    mine = None if None in card else evaluations.get(card)
    quality = nothing if mine is None else evaluated(mine, newest)
    figures, known = _figures(rows), _last_known(rows)
    nearest = known if len(rows) == 1 else _last_known(sorted(rows, key=_nearness))
    of_card = architectures.get(str(newest["card_sha256"]), {})
    return {
        **{name: known.get(name) for name in SCHEMA if name in newest},
        **{name: nearest.get(name) for name in _SIZES},
        "sweep_ids": sorted({str(row["sweep_id"]) for row in rows}),
        "started_utc": rows[0]["started_utc"],
        **{one.name: of_card.get(one.name) for one in ARCHITECTURE},
        **quality.fields,
        **figures,
        "flags": sorted(quality.flags.union(_flags(figures))),
    }


def _last_known(rows: list[Record]) -> Record:
    """The last value that is known of each; an older row can have facts that a newer one lacks."""
    known: Record = {}
    for row in rows:
        known |= {name: value for name, value in row.items() if value is not None}
    return known


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
