"""How far ranks carry from each platform to each other: two matrices and their table."""

from dataclasses import dataclass

import polars as pl

from analysis.errors import AnalysisError
from analysis.figures.heat_map import draw_heat_map, heat_points
from analysis.figures.labels import chosen_platforms
from analysis.report.evidence import Evidence
from analysis.report.html_table import html_table
from analysis.report.sections import Figure, Section, figure, table_of
from analysis.tables import Table, make_table

MAX_PLATFORMS = 24
"""Rows of a matrix that still have room for their figures on a laptop."""
MAX_COMPARED = 100
"""4,950 pairs with their intervals take about a second; the time grows with the square."""
_TITLES = {
    "latency": ("Latency", "Spearman's rho of the models' ranks"),
    "frm": ("FRM", "to be read against its null, shown on hover"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTables:
    """What could be made of `transfer` and `frameworks`, and why the rest could not."""

    tables: tuple[Table, ...]
    reasons: tuple[str, ...]


def transfer_tables(evidence: Evidence) -> TransferTables:
    """Makes both once: the headline and the section read the same figures."""
    tables, reasons = [], []
    compared = list(chosen_platforms(evidence.cells, MAX_COMPARED))
    attempts = evidence.attempts
    if len(compared) < len(evidence.names):
        attempts = attempts.filter(pl.col("platform_key").is_in(compared))
        reasons.append(
            f"Compared are {len(compared)} of {len(evidence.names)} platforms, an equal share of "
            "each tier; `fleetrank report show transfer` takes all."
        )
    for name in ("transfer", "frameworks"):
        try:
            tables.append(make_table(name, attempts, evidence.selection))
        except AnalysisError as error:
            reasons.append(str(error))
    return TransferTables(tables=tuple(tables), reasons=tuple(reasons))


def transfer_section(evidence: Evidence, found: TransferTables) -> Section:
    """Matrices of latency and FRM over the chosen platforms, and the tables behind them."""
    keys = list(chosen_platforms(evidence.cells, MAX_PLATFORMS))
    pairs = _pairs(evidence, found, keys)
    figures = [] if pairs is None else [_matrix(pairs, name, evidence, keys) for name in _TITLES]
    legend = (
        "Blue is an order that carries over, pale sand one that is half lost, orange one that "
        "says nothing. Rho has no direction, so both halves are equal."
    )
    cut = f"{len(keys)} of {len(evidence.names)} platforms are drawn."
    return Section(
        id="transfer",
        short="Transfer",
        title="How far do ranks carry from platform to platform?",
        lead=(legend if figures else "No pair of platforms can be compared.",),
        figures=tuple(figures),
        tables=(
            *(html_table(table, evidence.names, said=evidence.said) for table in found.tables),
            table_of(evidence, "frm"),
        ),
        notes=(*found.reasons, *((cut,) if len(keys) < len(evidence.names) else ())),
        layout="wide" if len(keys) <= 12 else "full",
    )


def _pairs(evidence: Evidence, found: TransferTables, keys: list[str]) -> pl.DataFrame | None:
    """Rows of single pairs; a fleet's table has too many, so the drawn platforms are asked anew."""
    if len(keys) == len(evidence.names):
        transfer = next((t for t in found.tables if "pair" in t.frame["level"]), None)
    else:
        some = evidence.attempts.filter(pl.col("platform_key").is_in(keys))
        try:
            transfer = make_table("transfer", some, evidence.selection)
        except AnalysisError:
            transfer = None
    return None if transfer is None else transfer.frame.filter(pl.col("level") == "pair")


def _matrix(pairs: pl.DataFrame, measure: str, evidence: Evidence, keys: list[str]) -> Figure:
    title, caption = _TITLES[measure]
    points = heat_points(pairs.filter(pl.col("measure") == measure), evidence.names)
    known = sorted(float(str(point["rho"])) for point in points if point["rho"] is not None)
    spread = f"from {known[0]:.2f} to {known[-1]:.2f}" if known else "undefined"
    return figure(
        f"transfer-{measure}",
        title,
        caption,
        f"Rank correlation of {title} between {len(keys)} platforms, {spread}.",
        draw_heat_map(points, [evidence.names[key] for key in keys]),
    )
