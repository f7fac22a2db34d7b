"""What the host did while models took turns, and how long attempts waited for their device."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.rounds import MeasuredRound
from fleetrank.analysis.stored.cell_notes import origin_banners
from fleetrank.analysis.stored.scope import select_stored
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
from fleetrank.foundation.wording import count_of


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
