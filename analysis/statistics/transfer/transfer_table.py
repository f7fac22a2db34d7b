"""Does a ranking carry over? Between platforms, between tiers, between runtimes."""

from collections.abc import Sequence

import polars as pl

from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.pair_groups import (
    PairGroup,
    Row,
    group_rows,
    pair_rows,
    runtime_groups,
    tier_groups,
)
from fleetrank.analysis.panel.pairs import Pair, draws_for
from fleetrank.analysis.panel.panel import Panel, incomplete_notes
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, select_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.ceiling import (
    Noise,
    mean_ceiling,
    noises,
    pair_ceilings,
    share_of_ceiling,
)
from fleetrank.analysis.tables.table import Table

_SCHEMA = {
    "level": pl.String,
    "measure": pl.String,
    "source": pl.String,
    "target": pl.String,
    "n_models": pl.Int64,
    "n_pairs": pl.Int64,
    "n_clusters": pl.Int64,
    "rho": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "null_mean": pl.Float64,
    "null_p95": pl.Float64,
    "headroom": pl.Float64,
    "ceiling": pl.Float64,
    "share_of_ceiling": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "tau_b": pl.Float64,
    "std_over_pairs": pl.Float64,
    "unlike": pl.String,
    "reason": pl.String,
}

_MEANING = (
    "rho: Spearman's, with ranks over the common models of the pair. It is symmetric, so a pair "
    "is listed once.",
    "FRM's null: its rho with latencies permuted on every platform. FLOPs are one of FRM's "
    "three parts and equal on every platform, so FRM correlates even if latency does not "
    "transfer at all; headroom = (rho - null_mean) / (1 - null_mean).",
    "ceiling: the highest rho possible given measurement noise; too optimistic if all repeats "
    "come from one session. Table `ceiling` has its parts, and the reason if it is missing. "
    "share_of_ceiling = rho / ceiling.",
    "low to high: 95 % percentile bootstrap over models, from 9 models on.",
    "p_value: of a pair's latency two-sided by permutation (exact up to 8 models), otherwise "
    "one-sided against the null; p_adjusted: Benjamini-Hochberg over the listed pairs of a "
    "measure. If pairs share different models, null_p95 and p_value of the mean are upper "
    "bounds.",
)


def transfer_table(session: Session) -> Table:
    """Rank transfer from tier to tier and for every pair of platforms, latency and FRM."""
    panel, selection = session.panel, session.selection
    pairs = select_pairs(panel, selection)
    tiers = tier_groups(panel, pairs)
    note = (
        "Tier to tier: platforms of different devices at equal batch; mean inside a pair of "
        "device models (a cluster) first, then over clusters; std_over_pairs is the spread of "
        "pairs, not an uncertainty."
    )
    if not tiers:
        note = "Tier to tier: undefined, no two devices were measured at equal batch."
    found = noises(session)
    return _finish("Rank transfer", panel, found, (tiers, pairs), (note, selection.seed))


def frameworks_table(session: Session) -> Table:
    """Framework invariance: equal device, threads, batch and precision, different runtime."""
    panel, selection = session.panel, session.selection
    facts = panel.platforms.to_dicts()
    same = ("device", "threads", "batch", "precision")
    pairs = [
        (i, j)
        for i, j in select_pairs(panel, selection)
        if facts[i]["runtime"] != facts[j]["runtime"]
        and all(facts[i][name] == facts[j][name] for name in same)
    ]
    if not pairs:
        raise NoDataError(
            "no device was measured with two runtimes at equal threads, batch and precision",
            "add a runtime to the sweep",
        )
    groups = runtime_groups(panel, pairs)
    note = "Runtimes: mean inside a device model (a cluster) first, then over device models."
    found = noises(session)
    return _finish("Framework invariance", panel, found, (groups, pairs), (note, selection.seed))


def _finish(
    title: str,
    panel: Panel,
    found: Sequence[Noise],
    of: tuple[Sequence[PairGroup], Sequence[Pair]],
    context: tuple[str, int],
) -> Table:
    (groups, pairs), (note, seed) = of, context
    is_listed = len(pairs) <= MAX_LISTED_PAIRS
    rows = [_group_row(noise, group, seed) for group in groups for noise in found]
    if is_listed:
        rows += [row for noise in found for row in _pair_rows(panel, noise, pairs, seed)]
    draws = draws_for(pairs)
    drawn = (
        f"Seed {seed}: {draws.bootstrap} resamples, {draws.permutation} permutations, "
        f"{draws.null} draws of the null."
    )
    hidden = () if is_listed else (unlisted(pairs),)
    frame = pl.DataFrame(rows, schema=_SCHEMA)
    warning = few_models_note(len(panel.models))
    notes = (*panel.notes, *incomplete_notes(panel), *hidden, note, *_MEANING, drawn, *warning)
    return Table(title=title, frame=frame, notes=notes)


def _group_row(noise: Noise, group: PairGroup, seed: int) -> Row:
    (row,) = group_rows(group, [noise.measure], seed)
    return row | _share(row, mean_ceiling(pair_ceilings(noise, group.pairs), group.clusters))


def _pair_rows(panel: Panel, noise: Noise, pairs: Sequence[Pair], seed: int) -> list[Row]:
    ceilings = pair_ceilings(noise, pairs).ceiling.tolist()
    rows = pair_rows(panel, noise.measure, pairs, seed)
    return [row | _share(row, one) for row, one in zip(rows, ceilings, strict=True)]


def _share(row: Row, ceiling: float) -> Row:
    rho = None if row["rho"] is None else float(str(row["rho"]))
    known, share = share_of_ceiling(rho, ceiling)
    return {"ceiling": known, "share_of_ceiling": share}
