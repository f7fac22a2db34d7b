"""Do two workloads rank models alike on one platform, and one workload on two devices?"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.pair_draws import PairDraws
from fleetrank.analysis.panel.pair_figures import PairFigures, figures_of_pairs
from fleetrank.analysis.panel.pair_groups import Level
from fleetrank.analysis.panel.pair_means import MeanFigures, figures_of_mean, mean_figures
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import Measure, Panel, measures
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.chosen_workload import named
from fleetrank.foundation.inputs.workload import IMAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseAgreement:
    """How far one measure ranks models alike.

    Attributes:
        level: `WORKLOADS`: of two workloads, a mean over platforms; `PLATFORM`: the same on one of
            them; `DEVICES`: of one workload, a mean over pairs of devices.
        source, target: workloads; the same one at level `DEVICES`.
        platform_key: only at level `PLATFORM`.
    """

    level: Level
    measure: str
    source: str
    target: str
    figures: MeanFigures | PairFigures
    platform_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesResult:
    """Agreement between workloads, and between devices.

    Attributes:
        rows: latency first, then FRM; of each the means over platforms, over devices, and single
            platforms.
        workloads: those compared.
        n_models: of all workloads together.
        n_platforms: with two or more of the workloads.
        banners: notes on rows of devices that are not real.
        left_out: workloads that cannot be ranked, each with the reason.
    """

    rows: tuple[PhaseAgreement, ...]
    workloads: tuple[str, ...]
    n_models: int
    n_platforms: int
    left_out: tuple[str, ...]
    banners: tuple[str, ...] = ()

    def mean(self, level: Level, measure: str, source: str, target: str) -> MeanFigures | None:
        """The mean of a level; `None` if nothing was measured for it."""
        wanted = (level, measure, source, target)
        for one in self.rows:
            if (one.level, one.measure, one.source, one.target) == wanted:
                return one.figures if isinstance(one.figures, MeanFigures) else None
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joint:
    """The panels of several workloads side by side: a column is a workload on a platform.

    Attributes:
        measures: latency and FRM, (n_models, n_columns); FLOPs differ between the columns, so the
            residual null, which has one figure for each model, is left out.
        columns: `workload`, `platform_key` and the facts of the platform, in column order.
    """

    models: tuple[str, ...]
    measures: tuple[Measure, ...]
    columns: pl.DataFrame


def phases(session: Session) -> PhasesResult:
    """Every pair of workloads with tokens of the selected rows; made once a session.

    A selection with a workload compares the others with this one only.

    Raises:
        NoDataError: no platform has rows of two workloads with tokens.
    """
    return session.once(_phases)


def _phases(session: Session) -> PhasesResult:
    panels, left_out = _panels(session)
    if len(panels) < 2:
        have = named(session.workloads) or "none"
        said = f"two workloads with tokens are needed, and the results have {have}."
        raise NoDataError(
            " ".join((said, *left_out)).rstrip("."),
            "measure prompts and steps, such as `workloads: [prefill@128, decode@128]` in a sweep",
        )
    joint = _joint(panels)
    between = _between_workloads(joint, session.selection.workload)
    if not between:
        raise NoDataError(
            f"no platform has two of the workloads {named(list(panels))}",
            "measure them on the same platform",
        )
    seed = session.selection.seed
    rows = [row for measure in joint.measures for row in _rows(joint, between, measure, seed)]
    used = {joint.columns["platform_key"][i] for pairs in between.values() for i, _ in pairs}
    return PhasesResult(
        rows=tuple(rows),
        workloads=tuple(panels),
        n_models=len(joint.models),
        n_platforms=len(used),
        left_out=left_out,
        banners=banners(pl.concat([session.of_workload(one).cells.cells for one in panels])),
    )


def _panels(session: Session) -> tuple[dict[str, Panel], tuple[str, ...]]:
    found, left_out = dict[str, Panel](), []
    for workload in session.workloads:
        if workload == str(IMAGE):
            continue
        try:
            found[workload] = session.of_workload(workload).panel
        except AnalysisError as error:
            left_out.append(f"Left out: {workload}, because {error.message}.")
    return found, tuple(left_out)


def _joint(panels: dict[str, Panel]) -> _Joint:
    models = sorted({name for panel in panels.values() for name in panel.models})
    at = {name: number for number, name in enumerate(models)}
    parts: list[list[Measure]] = []
    for panel in panels.values():
        rows = [at[name] for name in panel.models]
        parts.append([_spread(measure, rows, len(models)) for measure in measures(panel)])
    return _Joint(
        models=tuple(models),
        measures=tuple(_side_by_side(same) for same in zip(*parts, strict=True)),
        columns=pl.concat(
            panel.platforms.with_columns(pl.lit(name).alias("workload"))
            for name, panel in panels.items()
        ),
    )


def _spread(measure: Measure, rows: Sequence[int], n_models: int) -> Measure:
    """The measure over more models; NaN for those that its panel lacks."""

    def over_all(values: Floats) -> Floats:
        full = np.full((n_models, values.shape[1]), np.nan)
        full[rows] = values
        return full

    return Measure(
        name=measure.name, rest=over_all(measure.rest), latency=over_all(measure.latency)
    )


def _side_by_side(same: Sequence[Measure]) -> Measure:
    return Measure(
        name=same[0].name,
        rest=np.hstack([one.rest for one in same]),
        latency=np.hstack([one.latency for one in same]),
    )


def _between_workloads(joint: _Joint, wanted: str | None) -> dict[tuple[str, str], list[Pair]]:
    """Pairs of columns of one platform, by their two workloads."""
    workloads, keys = (joint.columns[name].to_list() for name in ("workload", "platform_key"))
    found: dict[tuple[str, str], list[Pair]] = {}
    by_key: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        by_key.setdefault(key, []).append(number)
    for numbers in by_key.values():
        for i, j in itertools.combinations(numbers, 2):
            if wanted in {None, workloads[i], workloads[j]}:
                found.setdefault((workloads[i], workloads[j]), []).append((i, j))
    order = {name: number for number, name in enumerate(dict.fromkeys(workloads))}
    return dict(sorted(found.items(), key=lambda one: (order[one[0][0]], order[one[0][1]])))


def _between_devices(joint: _Joint, workload: str) -> list[Pair]:
    """Pairs of columns of one workload: other devices, with equal runtime, precision and batch."""
    facts = joint.columns.with_row_index("at").filter(pl.col("workload") == workload).to_dicts()
    alike = ("runtime", "precision", "batch")
    return [
        (a["at"], b["at"])
        for a, b in itertools.combinations(facts, 2)
        if a["device"] != b["device"] and all(a[name] == b[name] for name in alike)
    ]


def _rows(
    joint: _Joint, between: dict[tuple[str, str], list[Pair]], measure: Measure, seed: int
) -> list[PhaseAgreement]:
    keys = joint.columns["platform_key"].to_list()
    kinds = joint.columns.select(pl.coalesce("device_model", "device")).to_series().to_list()
    means, singles = [], []
    for (source, target), pairs in between.items():
        drawn = PairDraws(measure, pairs, seed)
        clusters = _numbered([kinds[i] for i, _ in pairs])
        mean = figures_of_mean(drawn, np.arange(len(pairs)), clusters)
        means.append(_row(Level.WORKLOADS, measure, (source, target), mean))
        singles += [
            _row(Level.PLATFORM, measure, (source, target), figures, keys[i])
            for (i, _), figures in zip(pairs, figures_of_pairs(drawn), strict=True)
        ]
    for workload in dict.fromkeys(name for pair in between for name in pair):
        pairs = _between_devices(joint, workload)
        if pairs:
            clusters = _numbered([" + ".join(sorted((kinds[i], kinds[j]))) for i, j in pairs])
            mean = mean_figures(measure, pairs, clusters, seed)
            means.append(_row(Level.DEVICES, measure, (workload, workload), mean))
    return [*means, *(singles if len(singles) <= MAX_LISTED_PAIRS else ())]


def _row(
    level: Level,
    measure: Measure,
    between: tuple[str, str],
    figures: MeanFigures | PairFigures,
    platform_key: str | None = None,
) -> PhaseAgreement:
    return PhaseAgreement(
        level=level,
        measure=measure.name,
        source=between[0],
        target=between[1],
        figures=figures,
        platform_key=platform_key,
    )


def _numbered(clusters: Sequence[str]) -> npt.NDArray[np.int64]:
    return np.unique(clusters, return_inverse=True)[1]
