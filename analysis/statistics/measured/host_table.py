"""What the host did while models took turns, and how long attempts waited for their device."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.rounds.round_values import MeasuredRound
from fleetrank.analysis.rounds.weather import (
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
from fleetrank.analysis.stored.cell_notes import origin_banners
from fleetrank.analysis.stored.scope import select_stored
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "level": pl.String,
    "sweep_id": pl.String,
    "device": pl.String,
    "verdict": pl.String,
    "began_utc": pl.Datetime("us", "UTC"),
    "n_rounds": pl.Int64,
    "n_disturbed": pl.Int64,
    "n_models": pl.Int64,
    "n_blocks": pl.Int64,
    "host_percent": pl.Float64,
    "spread_percent": pl.Float64,
    "jump_percent": pl.Float64,
    "rest_percent": pl.Float64,
    "reason": pl.String,
}
_MEANING = (
    "Models that take turns meet the same states of the host. The effect that they share is "
    "subtracted before they are compared; this table says how large it was.",
    "host_percent: how much slower the host was in a round than in the mean of its sweep; of a "
    "sweep, the standard deviation over its rounds. spread_percent: standard deviation over the "
    "blocks of a round. jump_percent: largest change from one block to the next. rest_percent: "
    "standard deviation of what the models of a block do not share. Of a sweep, these are medians "
    "over rounds, and the largest jump.",
    f"verdict: a round is disturbed if spread_percent is above {100 * MOST_SPREAD:g} or "
    f"rest_percent above {100 * MOST_REST:g}, and unknown below {MIN_CELLS} models or {MIN_BLOCKS} "
    f"blocks. A sweep is disturbed if more than {100 * MOST_DISTURBED:g} % of its known rounds "
    "are, and unknown if less than half of its rounds are known. No round is left out.",
)


def host_table(session: Session) -> Table:
    """What the host did in the rounds of the selected sweeps; no row if no model took turns."""
    rounds = session.rounds.rounds
    rows: list[dict[str, object]] = []
    notes: list[str] = []
    for (sweep, device), group in itertools.groupby(sorted(rounds, key=_place), key=_place):
        found = [(one, weather_of(one)) for one in group]
        verdict = verdict_of_rounds([weather.verdict for _, weather in found])
        whole = _of_sweep(found)
        rows += [{"level": "sweep", "verdict": verdict, **whole}, *_of_rounds(found)]
        notes.append(
            f"Comparisons of {sweep} on {device}: {verdict}, {whole['n_disturbed']} of "
            f"{count_of(len(found), 'round')} disturbed."
        )
    if not rounds:
        notes.append("No selected model took turns: `rounds: {}` in a sweep file lets them.")
    frame = pl.DataFrame(rows, schema=_SCHEMA)
    return Table(
        title="Host",
        frame=frame,
        notes=(*origin_banners(_attempts(session)), *notes[:3]),
        explanation=_MEANING,
    )


def _place(one: MeasuredRound) -> tuple[str, str]:
    return one.sweep_id, one.device


_Found = Sequence[tuple[MeasuredRound, Weather]]


def _of_sweep(found: _Found) -> dict[str, object]:
    first, _ = found[0]
    jumps = [one.jump for _, one in found if one.jump is not None]
    above = [one.above for one, _ in found if one.above is not None]
    return {
        "sweep_id": first.sweep_id,
        "device": first.device,
        "began_utc": min((one.began_utc for one, _ in found if one.began_utc), default=None),
        "n_rounds": len(found),
        "n_disturbed": sum(one.verdict is RoundVerdict.DISTURBED for _, one in found),
        "n_models": len({cell for one, _ in found for cell in one.cells}),
        "n_blocks": sum(one.blocks.size for one, _ in found),
        "host_percent": 100 * float(np.std(above, ddof=1)) if len(above) > 1 else None,
        "spread_percent": _median([one.spread for _, one in found]),
        "jump_percent": _percent(max(jumps, default=None)),
        "rest_percent": _median([one.rest for _, one in found]),
    }


def _of_rounds(found: _Found) -> Iterator[dict[str, object]]:
    for one, weather in found:
        yield {
            "level": "round",
            "sweep_id": one.sweep_id,
            "device": one.device,
            "verdict": weather.verdict,
            "began_utc": one.began_utc,
            "n_models": len(one.cells),
            "n_blocks": one.blocks.size,
            "host_percent": _percent(one.above),
            "spread_percent": _percent(weather.spread),
            "jump_percent": _percent(weather.jump),
            "rest_percent": _percent(weather.rest),
            "reason": weather.reason,
        }


def _median(logs: Sequence[float | None]) -> float | None:
    known = [value for value in logs if value is not None]
    return _percent(float(np.median(known))) if known else None


def _percent(log: float | None) -> float | None:
    return None if log is None else 100 * math.expm1(log)


LEAST_WAIT_S = 1.0
"""A shorter wait is that of a process that starts."""
_OF_WAITS = (
    "An attempt waits while another sweep uses its device or its host, and while the device is "
    "hot, busy or away. No latency includes the wait: it says where a sweep's time went.",
    f"n_waited: attempts that waited {LEAST_WAIT_S:g} s or longer; waited_s: all their waits; "
    "longest_s: the longest one. Attempts of older versions do not say how long they waited.",
)


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
    return Table(title="Waits", frame=found, notes=notes, explanation=_OF_WAITS)


def _attempts(session: Session) -> pl.LazyFrame:
    selection = replace(session.selection, workload=str(session.workload))
    return select_stored(session.frame, selection)
