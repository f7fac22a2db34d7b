"""The audit of the comparable cells: each platform beside the others."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from fleetrank.analysis.arrays.bootstrap import MIN_MODELS_FOR_INTERVAL
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.audit import (
    PROPORTIONAL_SHARE,
    duplicate_pairs,
    fit_residuals,
    median_platforms,
    outliers,
    tied_share,
    unit_slips,
)
from fleetrank.analysis.statistics.measured.finding import Finding, Problem, exclude_command
from fleetrank.analysis.stored.columns import NS_PER_MS
from fleetrank.foundation.wording import count_of

MAX_TIED_SHARE = 0.05
"""More ties than this change a rank correlation by more than its rounding."""
_Sources = Mapping[tuple[str, str], tuple[str, str]]
"""Model of the panel and platform, to sweep and stored name of the model."""


def of_panel(session: Session) -> Iterator[Finding]:
    """Findings that compare platforms with one another; raises the errors of `session.panel`."""
    panel = session.panel
    names = ("identity", "platform_key", "sweep_id", "model")
    rows = session.comparable.cells.select(names).iter_rows()
    sources = {(identity, key): (sweep, model) for identity, key, sweep, model in rows}
    logs = np.log(np.where(panel.latency > 0, panel.latency, np.nan))
    yield from _duplicates(panel, logs)
    yield from _off_the_line(panel, logs, sources)
    yield from _ties(panel)
    yield from _few(panel)


def _duplicates(panel: Panel, logs: Floats) -> Iterator[Finding]:
    devices = panel.platforms["device"].to_list()
    for first, second, n_models, ratio, deviation in duplicate_pairs(logs):
        same = "the same device, " if devices[first] == devices[second] else ""
        is_equal = max(ratio, 1 / ratio) - 1 + deviation <= PROPORTIONAL_SHARE
        form = "equal to" if is_equal else "proportional to"
        yield Finding(
            what=Problem.DUPLICATE if is_equal else Problem.PROPORTIONAL,
            platform_key=panel.keys[second],
            model=None,
            figure=ratio,
            detail=(
                f"{form} {panel.keys[first]}: {same}{n_models} models, every ratio within "
                f"{100 * deviation:.2g} % of {ratio:.4g}"
            ),
            what_to_do="possibly the same device registered twice: if so, count it once",
        )


def _off_the_line(panel: Panel, logs: Floats, sources: _Sources) -> Iterator[Finding]:
    references = median_platforms(logs, panel.platforms["tier"].fill_null("?").to_list())
    for column, key in enumerate(panel.keys):
        residuals, scale = fit_residuals(logs[:, column], references[column])
        if scale is None:
            continue
        powers = unit_slips(residuals)
        for row in np.flatnonzero(outliers(residuals, scale)):
            factor = float(np.exp(residuals[row]))
            slip = int(powers[row])
            what = Problem.UNIT_SLIP if slip else Problem.AGAINST_THE_FIT
            sweep_id, model = sources[panel.models[row], key]
            yield Finding(
                what=what,
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
                command=exclude_command(what, sweep_id, model, key),
            )


def _ties(panel: Panel) -> Iterator[Finding]:
    for what, values in (
        (Problem.TIED_LATENCY, panel.latency),
        (Problem.TIED_MEMORY, panel.memory),
    ):
        for column, key in enumerate(panel.keys):
            share = tied_share(values[:, column])
            if share > MAX_TIED_SHARE:
                n = int(np.isfinite(values[:, column]).sum())
                yield Finding(
                    what=what,
                    platform_key=key,
                    model=None,
                    figure=share,
                    detail=f"share of {count_of(n, 'model')} that equals another's figure",
                    what_to_do="tied values (rounded at the source): their ranks are meaningless",
                )


def _few(panel: Panel) -> Iterable[Finding]:
    counts = np.isfinite(panel.latency).sum(axis=0)
    for key, n in zip(panel.keys, counts.tolist(), strict=True):
        if n < MIN_MODELS_FOR_INTERVAL:
            yield Finding(
                what=Problem.TOO_FEW_MODELS,
                platform_key=key,
                model=None,
                figure=float(n),
                detail=f"{count_of(n, 'model')}, {MIN_MODELS_FOR_INTERVAL} for an interval",
                what_to_do="measure more models; 100 are enough to decide a rho near 0.9",
            )
