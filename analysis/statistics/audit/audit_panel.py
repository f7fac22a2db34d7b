"""The audit of the comparable cells: each platform beside the others."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.bootstrap import MIN_MODELS_FOR_INTERVAL
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NotComparableError
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.audit.audit import (
    OUTLIER_FACTOR,
    PROPORTIONAL_SHARE,
    TOOLS_FACTOR,
    duplicate_pairs,
    fit_residuals,
    median_platforms,
    outliers,
    tied_share,
)
from fleetrank.analysis.statistics.audit.finding import AuditFinding
from fleetrank.analysis.statistics.audit.unit_slips import (
    MIB_PER_MB,
    mib_slips,
    model_slips,
    platform_slips,
    unit_slips,
)
from fleetrank.analysis.stored.name_patterns import split_precision
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.vocabulary import Problem
from fleetrank.foundation.wording import count_of

_TOOLS = ("runtime", "precision")
MAX_TIED_SHARE = 0.05
"""More ties than this change a rank correlation by more than its rounding."""
_Sources = Mapping[tuple[str, str], tuple[str, str]]
"""Model of the panel and platform, to sweep and stored name of the model."""


def of_panel(session: Session) -> Iterator[AuditFinding]:
    """Findings that compare platforms with one another; raises the errors of `session.panel`."""
    panel = session.panel
    logs = np.log(np.where(panel.latency > 0, panel.latency, np.nan))
    yield from _duplicates(panel, logs)
    yield from off_the_line(session)
    yield from _slipped(panel, logs)
    yield from _slipped_memory(panel, _sources_of(session))
    yield from _ties(panel)
    yield from _few(panel)


def _sources_of(session: Session) -> _Sources:
    names = ("identity", "platform_key", "sweep_id", "model")
    rows = session.comparable.cells.select(names).iter_rows()
    return {(identity, key): (sweep, model) for identity, key, sweep, model in rows}


def _duplicates(panel: Panel, logs: Floats) -> Iterator[AuditFinding]:
    devices = panel.platforms["device"].to_list()
    for pair in duplicate_pairs(logs):
        same = "the same device, " if devices[pair.first] == devices[pair.second] else ""
        is_equal = max(pair.ratio, 1 / pair.ratio) - 1 <= PROPORTIONAL_SHARE
        form = "equal to" if is_equal else "proportional to"
        yield AuditFinding(
            what=Problem.DUPLICATE if is_equal else Problem.PROPORTIONAL,
            platform_key=panel.keys[pair.second],
            figure=pair.ratio,
            detail=(
                f"{form} {panel.keys[pair.first]}: {same}{count_of(pair.n_models, 'model')}, "
                f"95 % of the ratios within {100 * pair.deviation:.2g} % of {pair.ratio:.4g}, "
                f"rho {pair.rho:.3g}"
            ),
            what_to_do="possibly the same device registered twice: if so, count it once",
        )


def off_the_line(session: Session) -> tuple[AuditFinding, ...]:
    """Latencies far from what the platform's other models predict; raises those of `panel`.

    All models predict, also those that the selection leaves out: a figure is as doubtful alone as
    among others.
    """
    return session.once_of_rows(_selected_off_the_line)


def _selected_off_the_line(session: Session) -> tuple[AuditFinding, ...]:
    chosen, sources = session.selection, _sources_of(session)
    if (chosen.model, chosen.family) == (None, None):
        return tuple(_off_the_line(session))
    # Some of the rows may have only one workload, all of them several.
    every = replace(chosen, model=None, family=None, workload=str(session.workload))
    names = {(*source, key): model for (model, key), source in sources.items()}
    found: list[AuditFinding] = []
    # Models of another version of the tools can make every platform of all models incomparable.
    with contextlib.suppress(NotComparableError):
        found.extend(_off_the_line(session.asked(every)))
    return tuple(
        replace(one, model=names[cell])
        for one in found
        if one.wrong_cell and (cell := (*one.wrong_cell, str(one.platform_key))) in names
    )


def _off_the_line(session: Session) -> Iterator[AuditFinding]:
    """Each precision has its own line: what int8 gains differs from device to device."""
    panel, sources = session.panel, _sources_of(session)
    logs = np.log(np.where(panel.latency > 0, panel.latency, np.nan))
    references = median_platforms(logs, _words(panel, "tier"), _words(panel, *_TOOLS))
    precise = _numbers([split_precision(model)[1] or "" for model in panel.models])
    for (column, key), own in product(enumerate(panel.keys), np.unique(precise)):
        reference, is_alike = references[column]
        values = np.where(precise == own, logs[:, column], np.nan)
        residuals, scale = fit_residuals(values, reference)
        if scale is None:
            continue
        powers = unit_slips(residuals)
        least = OUTLIER_FACTOR if is_alike else TOOLS_FACTOR
        for row in np.flatnonzero(outliers(residuals, scale, least)):
            factor = float(np.exp(residuals[row]))
            slip = int(powers[row])
            yield AuditFinding(
                what=Problem.UNIT_SLIP if slip else Problem.AGAINST_THE_FIT,
                platform_key=key,
                model=panel.models[row],
                figure=factor,
                detail=(
                    f"{panel.latency[row, column] / NS_PER_MS:.4g} ms is {factor:.3g} times the "
                    f"value predicted from the platform's other models; scale {np.exp(scale):.3g}"
                    + (f", near 10^{slip}" if slip else "")
                ),
                what_to_do=(
                    "check the unit of that row in the source"
                    if slip
                    else "measure it again; possible causes: a slow state, a fallback or another "
                    "network"
                ),
                wrong_cell=sources[panel.models[row], key],
            )


def _slipped(panel: Panel, logs: Floats) -> Iterator[AuditFinding]:
    """Platforms and models whose latencies are all in another unit."""
    tiers = _numbers(_words(panel, "tier"))
    powers, factors = platform_slips(logs, tiers)
    for column in np.flatnonzero(powers):
        yield AuditFinding(
            what=Problem.SLIPPED_PLATFORM,
            platform_key=panel.keys[column],
            figure=float(np.exp(factors[column])),
            detail=(
                f"its latencies are {np.exp(factors[column]):.3g} times those of its tier's median "
                f"platform, near 10^{powers[column]}"
            ),
            what_to_do="check the unit of the latencies in the source or in the mapping",
        )
    powers, factors = model_slips(logs, panel.flops, tiers)
    for row in np.flatnonzero(powers):
        yield AuditFinding(
            what=Problem.SLIPPED_MODEL,
            model=panel.models[row],
            figure=float(np.exp(factors[row])),
            detail=(
                f"on all platforms it takes {np.exp(factors[row]):.3g} times what its FLOPs (or, "
                f"without them, the median model) predict, near 10^{powers[row]}"
            ),
            what_to_do="check the unit of its latencies and of its FLOPs in the source",
        )


def _slipped_memory(panel: Panel, sources: _Sources) -> Iterator[AuditFinding]:
    """Peak memory in another unit, beside platforms that count it in the same way."""
    memory = np.log(np.where(panel.memory > 0, panel.memory, np.nan))
    counted = _numbers(_words(panel, "tier", "memory_metric"))
    powers, factors = platform_slips(memory, counted)
    references = median_platforms(memory, _words(panel, "memory_metric"), _words(panel, "tier"))
    alike = _numbers(_words(panel, "tier", "memory_metric", *_TOOLS))
    small = np.full(len(panel.keys), np.nan)
    for group in np.unique(alike):
        small[alike == group] = mib_slips(memory[:, alike == group])
    for column, key in enumerate(panel.keys):
        if powers[column] or np.isfinite(small[column]):
            factor = float(np.exp(factors[column] if powers[column] else small[column]))
            near = f"10^{powers[column]}" if powers[column] else f"{MIB_PER_MB:.7g} (MB and MiB)"
            yield AuditFinding(
                what=Problem.SLIPPED_MEMORY,
                platform_key=key,
                figure=factor,
                detail=f"its peak memory is {factor:.5g} times the median platform's, near {near}",
                what_to_do="check the unit of peak memory in the source or in the mapping",
            )
        residuals, scale = fit_residuals(memory[:, column], references[column][0])
        if scale is None:
            continue
        far = outliers(residuals, scale) & (unit_slips(residuals) != 0)
        for row in np.flatnonzero(far):
            factor = float(np.exp(residuals[row]))
            yield AuditFinding(
                what=Problem.SLIPPED_MEMORY,
                platform_key=key,
                model=panel.models[row],
                figure=factor,
                detail=(
                    f"peak memory is {factor:.4g} times the value predicted from the platform's "
                    f"other models, near 10^{unit_slips(residuals)[row]} (or 1024)"
                ),
                what_to_do="check the unit of that row in the source",
                wrong_cell=sources[panel.models[row], key],
            )


def _words(panel: Panel, *facts: str) -> list[str]:
    """Some facts of each platform as one text."""
    columns = [panel.platforms[fact].cast(pl.String).fill_null("?").to_list() for fact in facts]
    return [" ".join(parts) for parts in zip(*columns, strict=True)]


def _numbers(words: list[str]) -> npt.NDArray[np.int64]:
    return np.unique(np.array(words), return_inverse=True)[1].astype(np.int64)


def _ties(panel: Panel) -> Iterator[AuditFinding]:
    for what, values in (
        (Problem.TIED_LATENCY, panel.latency),
        (Problem.TIED_MEMORY, panel.memory),
    ):
        for column, key in enumerate(panel.keys):
            share = tied_share(values[:, column])
            if share > MAX_TIED_SHARE:
                n = int(np.isfinite(values[:, column]).sum())
                yield AuditFinding(
                    what=what,
                    platform_key=key,
                    figure=share,
                    detail=f"share of {count_of(n, 'model')} that equals another's figure",
                    what_to_do="tied values (rounded at the source): their ranks are meaningless",
                )


def _few(panel: Panel) -> Iterable[AuditFinding]:
    counts = np.isfinite(panel.latency).sum(axis=0)
    for key, n in zip(panel.keys, counts.tolist(), strict=True):
        if n < MIN_MODELS_FOR_INTERVAL:
            yield AuditFinding(
                what=Problem.TOO_FEW_MODELS,
                platform_key=key,
                figure=float(n),
                detail=f"{count_of(n, 'model')}, {MIN_MODELS_FOR_INTERVAL} for an interval",
                what_to_do="measure more models; 100 are enough to decide a rho near 0.9",
            )
