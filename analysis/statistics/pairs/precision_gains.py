"""What a precision gains over the widest float: time, size and memory on each platform."""

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

WIDEST_FIRST = (Precision.FP64, Precision.FP32, Precision.BF16, Precision.FP16)
"""Floats, the one with the largest range first: a platform compares with the first that it has."""
_NAMED = 6
"""Doubtful figures that a note names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRow:
    """One precision of a model beside the widest float that the platform measured of it.

    Attributes:
        beside: that float, the first of `WIDEST_FIRST`; `float_*` are its figures.
        ratio: median latency in the float over that in the precision.
        low, high: 95 % interval of the ratio; `None` where no repeats show one.
        mean_ratio: the same of mean latencies; `None` if a source has none.
        latency_ms: median.
        file_mib: of the exported file; `None` without.
        memory_mib: peak while running.
        load_ms, first_ms: loading, and the first inference.
        snr_db: signal-to-noise ratio of the outputs there against fp32.
    """

    model: str
    platform_key: str
    precision: str
    beside: str
    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict
    mean_ratio: float | None
    latency_ms: float
    float_ms: float
    file_mib: float | None
    float_file_mib: float | None
    memory_mib: float | None
    float_memory_mib: float | None
    load_ms: float | None
    float_load_ms: float | None
    first_ms: float | None
    float_first_ms: float | None
    snr_db: float | None


def gains_of_precisions(session: Session) -> Table:
    """Every model and platform with a float and another precision, the smallest gain first.

    Raises:
        NoDataError: no platform measured a model in a float and in another precision.
    """
    wanted = session.selection.precision
    fleet = fleet_of(session.asked(replace(session.selection, precision=ANY_PRECISION)))
    chosen = (row for row in _rows(fleet) if wanted in {None, row.precision})
    found = sorted(chosen, key=lambda row: (row.precision, row.ratio))
    if not found:
        raise NoDataError(
            "no platform measured a model in a float, such as fp32, and in another precision",
            "measure both: `precision: [fp32, int8]` in a sweep",
        )
    table = Table.of(
        GainRow,
        found,
        title="Precisions beside the widest float",
        notes=(*fleet.session.comparable.notes, *_doubtful(fleet), *_sentences(found)),
        explanation=explained("pairs/precisions", {"margin": fleet.margin}),
    )
    return replace(table, devices=published_names(session.frame))


def _rows(fleet: PairFleet) -> Iterator[GainRow]:
    names = fleet.panel.models
    places = {split_precision(name): row for row, name in enumerate(names)}
    cells = _facts(fleet)
    targets = fleet.targets()
    known = np.isfinite(fleet.logs)
    for (model, precision), row in places.items():
        if precision is None:
            continue
        floats = {one: places[model, one] for one in WIDEST_FIRST if (model, one) in places}
        for at in targets[known[row, targets]].tolist():
            widest = next((one for one in floats if known[floats[one], at]), precision)
            if widest == precision:
                continue
            plain = floats[Precision(widest)]
            one = fleet.measured_order((row, plain), at)
            facts = (cells[names[row], one.platform_key], cells[names[plain], one.platform_key])
            yield GainRow(
                model=model,
                platform_key=one.platform_key,
                precision=precision,
                beside=widest,
                ratio=math.exp(fleet.logs[plain, at] - fleet.logs[row, at]),
                low=one.low,
                high=one.high,
                verdict=_VERDICTS.get(one.order, Verdict.UNDECIDED),
                mean_ratio=_ratio(*(each["latency_mean_ns"] for each in facts)),
                latency_ms=math.exp(fleet.logs[row, at]) / NS_PER_MS,
                float_ms=math.exp(fleet.logs[plain, at]) / NS_PER_MS,
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
        for prefix, each in zip(("", "float_"), facts, strict=True)
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
    for precision, beside in dict.fromkeys((row.precision, row.beside) for row in found):
        rows = [row for row in found if (row.precision, row.beside) == (precision, beside)]
        ratios = np.array([row.ratio for row in rows])
        slower = sum(row.verdict is Verdict.SLOWER for row in rows)
        yield (
            f"{precision} is {np.median(ratios):.2f} times as fast as {beside} in the middle of "
            f"{count_of(len(rows), 'case')}, from {ratios.min():.2f} to {ratios.max():.2f}; "
            f"slower in {slower}."
        )
