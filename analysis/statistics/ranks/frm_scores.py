"""Part `frm` of table `flops`: FRM of the models on each platform."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.frm import EQUAL_WEIGHTS, FrmWeights, frm, ratios
from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import Floats, average_ranks
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.panel import Panel, components, has_memory, incomplete_notes
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table, explained

_SCHEMA = {
    "memory_metric": pl.String, "n_models": pl.Int64, "ratio_flops": pl.Float64,
    "ratio_memory": pl.Float64, "rank_flops": pl.Float64,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFrm:
    """FRM of the models of one platform that have every component used.

    Attributes:
        platform, memory_metric: facts of the platform.
        models: names, (n_models,).
        ratios: component to value over its geometric mean, (n_models,); the components used.
        frm, rank_frm, rank_latency: (n_models,); rank 1 is the best.
        rank_flops: (n_models,), `None` if FRM does not use FLOPs.
    """

    platform: str
    memory_metric: str | None
    models: tuple[str, ...]
    ratios: Mapping[str, Floats]
    frm: Floats
    rank_frm: Floats
    rank_latency: Floats
    rank_flops: Floats | None


def frm_scores(session: Session) -> tuple[PlatformFrm, ...]:
    """FRM on every platform that has models with all components used.

    Raises:
        AnalysisError: a weight is below 0, or latency's is 0.
        NoDataError: no platform has such models.
    """
    panel, weights = session.panel, frm_weights(session)
    used = [part for name, part in components(panel).items() if name in weights.used]
    present: Mask = np.all(np.isfinite(np.stack(used)), axis=0)
    columns = np.flatnonzero(present.any(axis=0)).tolist()
    if not columns:
        raise NoDataError(
            f"no model has {', '.join(weights.used)} above 0 on any platform: "
            + " ".join(incomplete_notes(panel, weights.used)),
            "see the table `latency` with `part=memory` for the measured values",
        )
    return tuple(_frm_of_platform(panel, present[:, column], column, weights) for column in columns)


_WEIGHTS = ("weight_flops", "weight_latency", "weight_memory")


def frm_table(session: Session) -> Table:
    """FRM of each model on each platform."""
    weights = frm_weights(session)
    shown = pl.concat(map(_frm_rows, frm_scores(session))).sort("platform_key", "rank_frm", "model")
    lacking = incomplete_notes(session.panel, weights.used)
    notes = (*session.panel.notes, *lacking, *weights_note(weights))
    return Table(title="FRM", frame=shown, notes=notes, explanation=explained("flops/frm"))


def frm_weights(session: Session) -> FrmWeights:
    """The weights the user set, else equal ones; memory has none where no row has a memory.

    Raises:
        AnalysisError: a weight is below 0, or latency's is 0.
    """
    flops, latency, memory = (setting(session.selection, name, 1.0) for name in _WEIGHTS)
    if not has_memory(session.panel):
        memory = 0.0
    try:
        return FrmWeights(flops=flops, latency=latency, memory=memory)
    except ValueError as error:
        raise AnalysisError(str(error), "such as `set weight_memory=0`") from error


def weights_note(weights: FrmWeights) -> tuple[str, ...]:
    """A note that FRM uses other weights than usual; empty at equal weights."""
    if weights == EQUAL_WEIGHTS:
        return ()
    listed = ", ".join(f"{name} {weight:g}" for name, weight in asdict(weights).items())
    return (f"FRM here is the weighted geometric mean of its ratios, weights: {listed}.",)


def _frm_of_platform(panel: Panel, present: Mask, column: int, weights: FrmWeights) -> PlatformFrm:
    rows = np.flatnonzero(present)
    parts = {name: part[rows, column][:, None] for name, part in components(panel).items()}
    flops, latency = parts["flops"][:, 0], parts["latency"]
    compound = frm(flops, latency, parts["memory"], weights=weights)
    used = {name: ratios(part)[:, 0] for name, part in parts.items() if name in weights.used}
    return PlatformFrm(
        platform=panel.keys[column],
        memory_metric=panel.platforms["memory_metric"][column],
        models=tuple(panel.models[row] for row in rows),
        ratios=used,
        frm=compound[:, 0],
        rank_frm=average_ranks(compound)[:, 0],
        rank_latency=average_ranks(latency)[:, 0],
        rank_flops=average_ranks(parts["flops"])[:, 0] if "flops" in used else None,
    )


def _frm_rows(found: PlatformFrm) -> pl.DataFrame:
    n = len(found.models)
    return pl.DataFrame(
        {
            "model": found.models,
            "platform_key": [found.platform] * n,
            "n_models": [n] * n,
            "ratio_flops": found.ratios.get("flops"),
            "ratio_latency": found.ratios["latency"],
            "ratio_memory": found.ratios.get("memory"),
            "frm": found.frm,
            "rank_frm": found.rank_frm,
            "rank_flops": found.rank_flops,
            "rank_latency": found.rank_latency,
            "memory_metric": [found.memory_metric] * n,
        },
        schema_overrides=_SCHEMA,
    )
