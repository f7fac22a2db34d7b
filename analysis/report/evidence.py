"""Everything the page is made from, read once."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis.columns import ORIGINS
from analysis.figures.labels import platform_labels
from analysis.figures.latency import process_medians
from analysis.load import load_measurements, valid_attempts
from analysis.scope import select_attempts, select_cells
from analysis.tables import Selection

_NEVER_SHOWN = ("samples_ns", "device_samples_ns")
"""Most of the bytes; everything on the page comes from the stored summaries."""
Record = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Rows and values behind one page.

    Attributes:
        attempts: every stored attempt of any origin, without its samples; in memory, since every
            table scans it anew.
        selected: those of them that the page speaks of.
        cells: as `cells_table.cell_values` gives them.
        processes: as `figures.latency.process_medians` gives them.
        names: platform key to its short name, in the order to show.
        said: notes that hold for the whole page and need not be repeated under each table.
        records: of the sweeps in `attempts`, newest first; `{}` where one cannot be read.
    """

    attempts: pl.LazyFrame
    selected: pl.LazyFrame
    cells: pl.DataFrame
    processes: pl.DataFrame
    names: dict[str, str]
    said: tuple[str, ...]
    records: tuple[Record, ...]
    selection: Selection


def gather(results: Path, selection: Selection) -> Evidence:
    """Reads what the page needs and nothing else.

    Raises:
        NoDataError: nothing was measured, or nothing with success.
    """
    scan = load_measurements(results, sweep=selection.sweep, origins=ORIGINS)
    attempts = scan.with_columns(
        pl.lit(None, dtype=pl.List(pl.Int64)).alias(name) for name in _NEVER_SHOWN
    ).collect()
    scope = select_cells(attempts.lazy(), selection)
    selected = select_attempts(attempts.lazy(), selection)
    return Evidence(
        attempts=attempts.lazy(),
        selected=selected,
        cells=scope.cells,
        processes=process_medians(valid_attempts(selected)),
        names=platform_labels(scope.cells),
        said=scope.notes,
        records=tuple(_records(results, scope.cells)),
        selection=selection,
    )


def _records(results: Path, cells: pl.DataFrame) -> Sequence[Record]:
    sweeps = cells.group_by("sweep_id").agg(pl.col("started_utc").min())
    newest_first = sweeps.sort("started_utc", descending=True, nulls_last=True)["sweep_id"]
    return [_record(results / "sweeps" / f"{sweep}.json", sweep) for sweep in newest_first]


def _record(path: Path, sweep: str) -> Record:
    """A page without a record is worth more than no page."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = None
    return {"sweep_id": sweep, **(record if isinstance(record, dict) else {})}
