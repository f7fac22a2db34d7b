"""The measured cells from which the time to read a text follows: prompts and segments."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import resampled_medians
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.reading.missing_readings import (
    PLACE,
    Reasons,
    excluded_rows,
    failed_note,
    last_errors,
    reasons_of,
)
from fleetrank.analysis.statistics.reading.reading_facts import CellFacts, ReadingCell, ReadingPlace
from fleetrank.analysis.stored.cell_notes import banners, notes_on_figures, notes_on_noise
from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.analysis.stored.chosen_workload import named
from fleetrank.analysis.stored.exclusions import exclusion_notes
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.load import valid_attempts
from fleetrank.analysis.stored.scope import within_memory
from fleetrank.foundation.units import BYTES_PER_MIB
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import Workload, WorkloadKind

DRAWS = 1000
"""Resamples of the processes of each cell."""
_CARD_LETTERS = 8
"""As many of the sum that names a card as tables show."""
_FACTS = (
    *PLACE, "cell_key", "workload", "sweep_id", "origin", "device", "latency_ns", STATISTIC,
    "peak_memory_bytes", "memory_metric", "flops", "model_context_tokens", "n_repeats", "flags",
    "process_gap", "taken_share",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """All places, sorted, and the cells that they are from.

    Attributes:
        left_out: cells of one workload and place that differ in their weights or options.
        dropped: notes on rows that gave no cell: over a limit, excluded by hand, failed.
    """

    places: tuple[ReadingPlace, ...]
    cells: pl.DataFrame
    left_out: pl.DataFrame
    dropped: tuple[str, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Every length of a measured prompt, of any model, rising."""
        return tuple(sorted({length for one in self.places for length in one.prompts}))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of any part must know."""
        n_models = self.cells["model"].n_unique()
        n_platforms = len({one.platform_key for one in self.places})
        n_segments = sum(len(one.segments) for one in self.places)
        counts = (
            f"{count_of(n_models, 'model')}, {count_of(n_platforms, 'platform')}, "
            f"{count_of(len(self.lengths), 'length')} of prompts, "
            f"{count_of(n_segments, 'cell')} of segments."
        )
        return (
            *banners(self.cells), counts, *notes_on_figures(self.cells), *self.dropped,
            *notes_on_noise(self.cells), *self._unlike_notes(),
        )  # fmt: skip

    def _unlike_notes(self) -> Iterator[str]:
        """On cells that look alike and are not."""
        of_cards = self.cells.filter(pl.col("name") != pl.col("model"))["model"].unique().sort()
        if len(of_cards):
            yield (
                f"Measured with different cards: {named(of_cards.to_list())}. Rows name the card, "
                "and platforms are compared only where it is equal."
            )
        n_mixed = sum(one.n_sweeps > 1 for one in self.places)
        if n_mixed:
            yield (
                f"{count_of(n_mixed, 'model')} on a platform from several sweeps: a change of the "
                "device between them looks like a difference of ways."
            )
        if self.left_out.height:
            workloads = named(self.left_out["workload"].unique().sort().to_list())
            yield (
                f"Left out: {count_of(self.left_out.height, 'cell')} of {workloads}, of which a "
                "platform has several with unlike weights or options."
            )


@once_a_session
def readings(session: Session) -> Readings:
    """The places of the selected rows, whatever their workload; made once a session.

    A workload that one platform has of two weights or options of one model is left out there, and
    the notes count it.

    Raises:
        NoDataError: no prompt and no segment was measured at batch 1.
    """
    limit = session.selection.max_memory_mib
    # Without the limit first: a reason names what it drops.
    unlimited = session.unlimited
    kinds = {WorkloadKind.PREFILL, WorkloadKind.SEGMENT}
    wanted = [one for one in session.workloads if Workload.parse(one).kind in kinds]
    parts = [part for one in wanted for part in _cells(unlimited, one)]
    measured = pl.concat(parts, how="diagonal") if parts else pl.DataFrame()
    excluded, errors = excluded_rows(session, wanted), last_errors(unlimited, wanted)
    dropped = (*exclusion_notes(excluded), *failed_note(errors, measured, wanted))
    _refuse_none(measured, dropped)
    fitting, limited = (measured, ()) if limit is None else within_memory(measured, limit)
    is_one = pl.len().over(*PLACE, "workload") == 1
    cells, unlike = _with_names(fitting.filter(is_one)), fitting.filter(~is_one)
    _refuse_none(cells, dropped)
    keys = (*PLACE, "workload", "cell_key")
    reasons = reasons_of(
        excluded=excluded,
        unlike=unlike,
        limited=measured.join(fitting, on=keys, how="anti", nulls_equal=True),
        limit_mib=limit,
    )
    places = [
        _place(frame, errors, reasons, session.selection.seed)
        for frame in cells.partition_by(PLACE, maintain_order=True)
    ]
    return Readings(
        places=tuple(sorted(places, key=lambda one: (one.model, one.platform_key))),
        cells=cells,
        left_out=unlike,
        dropped=(*limited, *dropped),
    )


def _refuse_none(cells: pl.DataFrame, dropped: tuple[str, ...]) -> None:
    if cells.is_empty():
        said = "the selected rows have no prompt and no segment at batch 1."
        raise NoDataError(
            " ".join((said, *dropped)).rstrip("."),
            "measure both: `workloads: [prefill@256, prefill@512, prefill@1024, segment@128]`",
        )


def _cells(session: Session, workload: str) -> Iterator[pl.DataFrame]:
    if (cells := session.cells_of(workload)) is None:
        return
    kept = cells.filter(pl.col("batch") == 1, pl.col("latency_ns") > 0)
    processes = (
        valid_attempts(session.of_workload(workload).attempts)
        .select("cell_key", "latency_p50_ns")
        .drop_nulls()
    )
    medians = processes.group_by("cell_key").agg(pl.col("latency_p50_ns").sort()).collect()
    yield kept.select(_FACTS).join(medians, on="cell_key")


def _with_names(cells: pl.DataFrame) -> pl.DataFrame:
    """Adds `name`: the model's, with the card if the cells have several cards of it.

    A row without a card has the only card that is known, unless its platform has both.
    """
    card = pl.col("card_sha256")
    is_unlike = card.n_unique().over("model", "platform_key") > 1
    has_several = card.drop_nulls().n_unique().over("model") > 1
    long = pl.format("{} (card {})", "model", card.str.slice(0, _CARD_LETTERS).fill_null("?"))
    return cells.with_columns(is_unlike.alias("name")).with_columns(
        pl.when(has_several | pl.col("name").any().over("model"))
        .then(long)
        .otherwise("model")
        .alias("name")
    )


def _place(frame: pl.DataFrame, errors: Reasons, reasons: Reasons, seed: int) -> ReadingPlace:
    cells = [_cell(row, seed) for row in frame.iter_rows(named=True)]
    first = frame.row(0, named=True)
    place = tuple(first[name] for name in PLACE)
    prompts = (one for one in cells if one.workload.kind is WorkloadKind.PREFILL)
    return ReadingPlace(
        model=first["name"],
        platform_key=first["platform_key"],
        context=frame["model_context_tokens"].drop_nulls().max(),  # type: ignore[arg-type]
        prompts={one.tokens: one for one in sorted(prompts, key=lambda one: one.tokens)},
        segments=tuple(one for one in cells if one.workload.kind is WorkloadKind.SEGMENT),
        failed=errors.get(place, {}),
        n_sweeps=frame["sweep_id"].n_unique(),
        left_out=reasons.get(place, {}),
    )


def _cell(row: Mapping[str, object], seed: int) -> ReadingCell:
    medians = np.asarray(row["latency_p50_ns"], dtype=float)
    name = f"{row['model']} {row['workload']} {row['platform_key']}"
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    has_draws, memory = medians.size >= MIN_REPEATS, row["peak_memory_bytes"]
    return ReadingCell(
        workload=Workload.parse(str(row["workload"])),
        latency_ns=row["latency_ns"],  # type: ignore[arg-type]
        draws_ns=resampled_medians(medians[None], DRAWS, rng)[:, 0] if has_draws else None,
        facts=CellFacts(
            peak_memory_mib=None if memory is None else memory / BYTES_PER_MIB,  # type: ignore[operator]
            memory_metric=row["memory_metric"],  # type: ignore[arg-type]
            n_repeats=medians.size,
        ),
        flops=row["flops"],  # type: ignore[arg-type]
    )
