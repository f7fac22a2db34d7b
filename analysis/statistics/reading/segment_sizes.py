"""Part `sizes` of table `strategies`: what length, sensory tokens and memories cost."""

from collections.abc import Iterator

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.reading.crossover import end_points
from fleetrank.analysis.statistics.reading.reading_cells import (
    ReadingCell,
    ReadingPlace,
    drawn,
    readings,
)
from fleetrank.analysis.statistics.reading.ways import stride_of
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.inputs.workload import Workload, WorkloadKind
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS

_SCHEMA = {
    "model": pl.String, "platform_key": pl.String, "workload": pl.String,
    "segment_tokens": pl.Int64, "sensory_tokens": pl.Int64, "n_memories": pl.Int64,
    "per_token_ms": pl.Float64, "ratio": pl.Float64, "ratio_low": pl.Float64,
    "ratio_high": pl.Float64, "ratio_of_operations": pl.Float64, "reference": pl.String,
    "peak_memory_mib": pl.Float64, "memory_metric": pl.String, "n_repeats": pl.Int64,
    "reason": pl.String,
}  # fmt: skip
_MEANING = (
    "per_token_ms: one segment over its new tokens. ratio: per_token_ms over that of the reference "
    "of the same model and platform: by default the segment with most memories, of these the one "
    "with most sensory tokens, of these the longest. Its interval: 95 % percentile bootstrap of the"
    " medians of processes, each cell apart, from 5 repeats on."
)
_OPERATIONS = (
    "ratio_of_operations: the same ratio of the operations of both, as counted. Segments that "
    "differ in one size alone show what this size costs; +n0 is a segment without memory, +k0 one "
    "without sensory tokens."
)


def segment_sizes_table(session: Session) -> Table:
    """One row for each segment of each model and platform that has several.

    Raises:
        AnalysisError: the setting `reference` is not a segment, or windows have a stride.
        NoDataError: no model has two segments on one platform.
    """
    found, wanted = readings(session), _wanted(session.selection)
    places = [one for one in found.places if len(one.segments) > 1]
    if not places:
        raise NoDataError(
            "no model was measured with segments of two sizes on one platform",
            "measure several: `workloads: [segment@128, segment@128+k0, segment@128+n0]`",
        )
    rows = [row for place in places for row in _rows(place, wanted)]
    return Table(
        title="Sizes of segments",
        frame=pl.DataFrame(rows, schema=_SCHEMA),
        notes=found.notes,
        explanation=(_MEANING, _OPERATIONS, drawn(session)),
    )


def _wanted(selection: Selection) -> Workload | None:
    """The segment that the user named."""
    if stride_of(selection) is not None:
        raise AnalysisError(
            "setting 'stride' of table 'strategies' has no effect with part=sizes",
            "leave it out, or choose another part, such as `part=crossover`",
        )
    text = setting(selection, "reference", "")
    if not text:
        return None
    try:
        found = Workload.parse(text)
    except ValueError:
        found = None
    if found is None or found.kind is not WorkloadKind.SEGMENT:
        raise AnalysisError(
            f"reference={text} is not a segment", "such as `set reference=segment@128+k0`"
        )
    return found


def _size(cell: ReadingCell) -> tuple[int, int, int]:
    one = cell.workload
    return one.memories or 0, one.sensory or 0, cell.tokens


def _rows(place: ReadingPlace, wanted: Workload | None) -> Iterator[dict[str, object]]:
    of_name = {one.workload: one for one in place.segments}
    reference = max(place.segments, key=_size) if wanted is None else of_name.get(wanted)
    for cell in place.segments:
        memory = cell.peak_memory_bytes
        yield {
            "model": place.model,
            "platform_key": place.platform_key,
            "workload": str(cell.workload),
            "segment_tokens": cell.tokens,
            "sensory_tokens": cell.workload.sensory,
            "n_memories": cell.workload.memories,
            "per_token_ms": cell.latency_ns / cell.tokens / NS_PER_MS,
            "reference": str(reference.workload) if reference else None,
            "peak_memory_mib": None if memory is None else memory / BYTES_PER_MIB,
            "memory_metric": cell.memory_metric,
            "n_repeats": cell.n_repeats,
            **(
                _ratios(cell, reference)
                if reference
                else {"reason": f"no ratio: {wanted} was not measured"}
            ),
        }


def _ratios(cell: ReadingCell, reference: ReadingCell) -> dict[str, object]:
    share = reference.tokens / cell.tokens
    found: dict[str, object] = {"ratio": share * cell.latency_ns / reference.latency_ns}
    if cell.flops and reference.flops:
        found["ratio_of_operations"] = share * cell.flops / reference.flops
    if cell is reference:
        return found
    if cell.draws_ns is None or reference.draws_ns is None:
        return found | {"reason": cell.why_no_draws or reference.why_no_draws}
    low, high = end_points(share * cell.draws_ns / reference.draws_ns)
    return found | {"ratio_low": low, "ratio_high": high}
