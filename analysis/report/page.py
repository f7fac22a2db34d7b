"""The page: one HTML file that opens without a network and carries its own evidence."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import jinja2
import polars as pl
from markupsafe import Markup

from analysis.errors import AnalysisError
from analysis.figures.theme import FAMILY_COLOURS
from analysis.load import DEFAULT_ORIGINS
from analysis.report.embed import own_script, script_bundle, script_hash
from analysis.report.evidence import Evidence, gather
from analysis.report.headline import READING, headlines
from analysis.report.provenance import provenance_section
from analysis.report.sections import (
    flops_section,
    frontier_section,
    latency_section,
    memory_section,
    quality_section,
)
from analysis.report.transfer_section import transfer_section, transfer_tables
from analysis.scope import count_of, devices_of
from analysis.tables import Selection

_TEMPLATES = "report/templates"
_FAMILY_PATHS: Mapping[str, str] = {
    "standard_cnn": "M-4-4h8v8h-8z",
    "mobile_cnn": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "efficient_cnn": "M0-5.6L5.6 0L0 5.6L-5.6 0z",
    "transformer": "M0-5L5.5 4.5H-5.5z",
    "hybrid": "M0 5L5.5-4.5H-5.5z",
}
"""The shapes of `theme.FAMILY_SHAPES`, for the legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """What was written."""

    path: Path
    size_bytes: int
    n_rows: int
    n_models: int
    n_platforms: int


def build_report(
    results: Path,
    out: Path,
    *,
    sweep: str | None = None,
    origins: Sequence[str] = DEFAULT_ORIGINS,
    seed: int = 0,
) -> ReportFacts:
    """Writes the page about a results folder to `out`; an older page stays until then.

    Raises:
        NoDataError: there is nothing to report.
        AnalysisError: the folder is from a newer version, the drawing library is missing, or
            `out` cannot be written.
    """
    evidence = gather(results, Selection(sweep=sweep, origins=tuple(origins), seed=seed))
    html = render_page(evidence, datetime.now(UTC))
    _write(out, html)
    return ReportFacts(
        path=out,
        size_bytes=len(html.encode()),
        n_rows=evidence.selected.select(pl.len()).collect().item(),
        n_models=evidence.cells["model"].n_unique(),
        n_platforms=len(evidence.names),
    )


def render_page(evidence: Evidence, now: datetime) -> str:
    """The page as text; every value goes through the template's escaping."""
    folder = resources.files("analysis").joinpath(_TEMPLATES)
    bundle, found = script_bundle(), transfer_tables(evidence)
    page_js = folder.joinpath("page.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(folder.joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title="fleetrank transfer report",
        question="Can I trust my reference platform?",
        facts=_facts(evidence.cells, now),
        banner=_banner(evidence.cells),
        headlines=headlines(found.tables, " ".join(found.reasons)),
        reading=READING,
        sections=(
            latency_section(evidence),
            transfer_section(evidence, found),
            frontier_section(evidence),
            flops_section(evidence),
            memory_section(evidence),
            quality_section(evidence),
            provenance_section(evidence),
        ),
        families=[
            {"name": name.replace("_", " "), "colour": colour, "path": _FAMILY_PATHS[name]}
            for name, colour in FAMILY_COLOURS.items()
            if name in set(evidence.cells["family"])
        ],
        footer=" ".join(evidence.said),
        css=Markup(folder.joinpath("page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own
        script_hashes=f"{script_hash(bundle)} {script_hash(page_js)}",
        bundle=own_script(bundle),
        page_js=own_script(page_js),
    )


def _facts(cells: pl.DataFrame, now: datetime) -> list[str]:
    first = cells["started_utc"].drop_nulls().min()
    measured = f"measured {first:%Y-%m-%d}" if isinstance(first, datetime) else "time not recorded"
    return [
        count_of(cells["model"].n_unique(), "model"),
        count_of(cells["platform_key"].n_unique(), "platform"),
        count_of(cells["device"].n_unique(), "device"),
        measured,
        f"page built {now:%Y-%m-%d %H:%M} UTC",
    ]


def _banner(cells: pl.DataFrame) -> str | None:
    unreal = cells.filter(pl.col("origin").str.contains("simulated|virtual"))
    if unreal.is_empty():
        return None
    kinds = " and ".join(sorted(set(" | ".join(unreal["origin"]).split(" | "))))
    return (
        f"{unreal.height} of {cells.height} values are {kinds}, those of {devices_of(unreal)}: "
        "they show how this page works, and say nothing about hardware."
    )


def _write(out: Path, html: str) -> None:
    aside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(html, encoding="utf-8")
        aside.replace(out)
    except OSError as error:
        raise AnalysisError(
            f"{out} cannot be written: {error.strerror or error}", "name another file with --out"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
