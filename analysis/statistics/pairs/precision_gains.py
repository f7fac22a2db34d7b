"""What a precision gains over fp32: time, size and memory of each model on each platform."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.two_samples import Verdict
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.labels import published_names
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.pair_fleet import PairFleet, fleet_of
from fleetrank.analysis.statistics.pairs.pair_orders import Order
from fleetrank.analysis.stored.name_patterns import ANY_PRECISION, split_precision
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS
from fleetrank.foundation.vocabulary import Precision
from fleetrank.foundation.wording import count_of, few_of

_VERDICTS = {
    Order.KEPT: Verdict.FASTER, Order.REVERSED: Verdict.SLOWER, Order.EQUAL: Verdict.SAME,
}  # fmt: skip

_NAMED = 6
"""Doubtful figures that a note names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRow:
    """One precision of a model beside its fp32 on a platform that measured both.

    Attributes:
        ratio: median latency in fp32 over that in the precision.
        low, high: 95 % interval of the ratio; `None` where no repeats show one.
        mean_ratio: the same of mean latencies; `None` if a source has none.
        latency_ms, fp32_ms: medians.
        file_mib, fp32_file_mib: of the exported files; `None` without.
        memory_mib, fp32_memory_mib: peaks while running.
        load_ms, fp32_load_ms, first_ms, fp32_first_ms: loading, and the first inference.
        snr_db: signal-to-noise ratio of the outputs there against fp32.
    """

    model: str
    platform_key: str
    precision: str
    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict
    mean_ratio: float | None
    latency_ms: float
    fp32_ms: float
    file_mib: float | None
    fp32_file_mib: float | None
    memory_mib: float | None
    fp32_memory_mib: float | None
    load_ms: float | None
    fp32_load_ms: float | None
    first_ms: float | None
    fp32_first_ms: float | None
    snr_db: float | None


def gains_of_precisions(session: Session) -> Table:
    """Every model and platform with fp32 and another precision, the smallest gain first.

    Raises:
        NoDataError: no platform measured a model in fp32 and in another precision.
    """
    wanted = session.selection.precision
    fleet = fleet_of(session.asked(replace(session.selection, precision=ANY_PRECISION)))
    chosen = (row for row in _rows(fleet) if wanted in {None, row.precision})
    found = sorted(chosen, key=lambda row: (row.precision, row.ratio))
    if not found:
        raise NoDataError(
            "no platform measured a model in fp32 and in another precision",
            "measure both: `precision: [fp32, int8]` in a sweep",
        )
    table = Table.of(
        GainRow,
        found,
        title="Precisions beside fp32",
        notes=(*fleet.session.comparable.notes, *_doubtful(fleet), *_sentences(found)),
        explanation=explained("pairs/precisions", {"margin": fleet.margin}),
    )
    return replace(table, devices=published_names(session.frame))


def _rows(fleet: PairFleet) -> Iterator[GainRow]:
    names = fleet.panel.models
    places = {split_precision(name): row for row, name in enumerate(names)}
    cells = _facts(fleet)
    targets = fleet.targets()
    for (model, precision), row in places.items():
        plain = places.get((model, Precision.FP32))
        if plain is None or precision is None or plain == row:
            continue
        both = np.isfinite(fleet.logs[row]) & np.isfinite(fleet.logs[plain])
        for at in targets[both[targets]]:
            one = fleet.measured_order((row, plain), int(at))
            facts = (cells[names[row], one.platform_key], cells[names[plain], one.platform_key])
            yield GainRow(
                model=model,
                platform_key=one.platform_key,
                precision=precision,
                ratio=math.exp(fleet.logs[plain, at] - fleet.logs[row, at]),
                low=one.low,
                high=one.high,
                verdict=_VERDICTS.get(one.order, Verdict.UNDECIDED),
                mean_ratio=_ratio(*(each["latency_mean_ns"] for each in facts)),
                latency_ms=math.exp(fleet.logs[row, at]) / NS_PER_MS,
                fp32_ms=math.exp(fleet.logs[plain, at]) / NS_PER_MS,
                snr_db=facts[0]["snr_db"],
                **_sizes(facts),
            )


_SIZES = {
    "file_mib": ("artifact_bytes", BYTES_PER_MIB),
    "memory_mib": ("peak_memory_bytes", BYTES_PER_MIB),
    "load_ms": ("load_ns", NS_PER_MS),
    "first_ms": ("first_inference_ns", NS_PER_MS),
}


def _facts(fleet: PairFleet) -> dict[tuple[str, str], dict[str, float | None]]:
    """The figures of each model and platform key."""
    names = ["latency_mean_ns", "snr_db", *(column for column, _ in _SIZES.values())]
    cells = fleet.session.comparable.cells.select("identity", "platform_key", *names)
    figures = cells.select(pl.col(names).cast(pl.Float64)).to_dicts()
    return dict(
        zip(zip(cells["identity"], cells["platform_key"], strict=True), figures, strict=True)
    )


def _sizes(facts: tuple[Mapping[str, float | None], ...]) -> dict[str, float | None]:
    """The sizes of both files, each by the name of its column."""
    return {
        f"{prefix}{name}": None if (value := each[column]) is None else value / unit
        for prefix, each in zip(("", "fp32_"), facts, strict=True)
        for name, (column, unit) in _SIZES.items()
    }


def _ratio(after: float | None, before: float | None) -> float | None:
    return before / after if before and after else None


def _doubtful(fleet: PairFleet) -> Iterator[str]:
    """Which figures the audit leaves out of the gains."""
    names = [
        f"{fleet.panel.models[row]} on {fleet.labels[fleet.panel.keys[at]]}"
        for row, at in sorted({*fleet.doubts, *fleet.unlike})
    ]
    if names:
        yield f"Left out: {few_of(names, _NAMED)}, whose figures are doubtful."


def _sentences(found: list[GainRow]) -> Iterator[str]:
    for precision in dict.fromkeys(row.precision for row in found):
        rows = [row for row in found if row.precision == precision]
        ratios = np.array([row.ratio for row in rows])
        slower = sum(row.verdict is Verdict.SLOWER for row in rows)
        yield (
            f"{precision} is {np.median(ratios):.2f} times as fast as fp32 in the middle of "
            f"{count_of(len(rows), 'case')}, from {ratios.min():.2f} to {ratios.max():.2f}; "
            f"slower in {slower}."
        )
