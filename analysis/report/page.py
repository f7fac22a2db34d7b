"""The page: one HTML file that opens without a network and contains all its data."""

import base64
import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import jinja2
import polars as pl
from markupsafe import Markup

from fleetrank.analysis.figures import FAMILY_MARKS, platform_labels
from fleetrank.analysis.report.charts import TEMPLATES, chart_specs, script_bundle
from fleetrank.analysis.report.evidence import Evidence, gather
from fleetrank.analysis.report.page_data import page_data
from fleetrank.analysis.report.page_tables import PageTables, kinds_of, page_tables, unreal_rows
from fleetrank.analysis.report.pair_view import answer_sentences
from fleetrank.analysis.report.rank_points import rank_series
from fleetrank.analysis.report.sections import Section, page_sections
from fleetrank.analysis.statistics.measured.devices_table import States
from fleetrank.analysis.stored.cell_notes import devices_of
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS, NO_FAMILY
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.glossary import TERMS
from fleetrank.analysis.tables.values import time_text
from fleetrank.foundation.files import make_folder, replace_file
from fleetrank.foundation.visible_text import visible
from fleetrank.foundation.wording import count_of, with_flags
from fleetrank.foundation.workload import IMAGE


def json_block(value: object) -> Markup:
    """JSON for a `<script type="application/json">`: nothing in it can end the block.

    Source: HTML standard, 4.12.1.3: inside a script a parser looks only for `<`.
    """
    text = _dumped(value)
    # Characters that JSON escapes must be shown in the same way as in the rest of the page.
    if "\\" in text or visible(text) != text:
        text = _dumped(_visible_parts(value))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def templates(*other: str) -> jinja2.Environment:
    """The environment of the page's templates; it escapes every value.

    Args:
        other: package and folder of further templates.
    """
    loaders = [jinja2.PackageLoader("fleetrank.analysis", TEMPLATES)]
    if other:
        loaders.append(jinja2.PackageLoader(*other))
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: object) -> object:
    """The text that a template writes for a value; characters that change direction are escaped."""
    return visible(value) if type(value) is str else value


def _dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _visible_parts(value: object) -> object:
    """Escapes all text in a value like `_shown`: the script compares it with text in templates."""
    if isinstance(value, dict):
        return {_shown(key): _visible_parts(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_visible_parts(part) for part in value]
    return _shown(value)


def own_script(text: str) -> Markup:
    """A script of this project or its bundle, unchanged.

    Raises:
        ValueError: it contains text that would end its block.
    """
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError("a script that ends its own block cannot be embedded")
    return Markup(text)  # noqa: S704 - shipped with the product, never from data


def script_hash(text: str) -> str:
    """The source expression that allows an inline script in a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


_SCRIPTS = (
    "state.js", "chart.js", "look.js", "latency.js", "memory.js", "ranks.js", "matrix.js",
    "frontiers.js", "history.js", "turns.js", "tokens.js", "growth.js", "panels.js",
    "tables.js", "copying.js", "table_tools.js", "filters.js", "answer.js", "start.js",
)  # fmt: skip
"""The files are joined to one script. A file may use names from the files before it."""
_CHARTS = (
    "latency", "memory", "ranks", "matrix", "frontier", "pair", "history", "turns", "rates",
    "contexts", "scaling", "sustained", "intervals",
)  # fmt: skip


_EVERY_ROW = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """Facts about the page that was written.

    Attributes:
        answer: the sentences about the pair of models that matters most; empty without a pair.
    """

    path: Path
    size_bytes: int
    n_rows: int
    n_models: int
    n_platforms: int
    answer: tuple[str, ...] = ()


def build_report(
    results: Path,
    out: Path,
    *,
    selection: Selection = _EVERY_ROW,
    is_predicted: bool = False,
    states: States | None = None,
) -> ReportFacts:
    """Writes the page about a results folder to `out`; an older page is replaced at the end.

    A page is about one workload: that of the selection, or `image`, or else the first one.

    With `is_predicted` it also shows predicted latencies where a platform lacks a model; `states`
    are those of the devices now, as of `with_states`.

    Raises:
        NoDataError: no data to report exists.
        AnalysisError: the folder is from a newer version, the drawing library is missing, or
            `out` cannot be written.
    """
    evidence = gather(results, selection)
    tables = page_tables(evidence, is_predicted=is_predicted, states=states)
    html = render_page(evidence, datetime.now(UTC), tables)
    make_folder(out.parent)
    replace_file(out, html.encode())
    return ReportFacts(
        path=out,
        size_bytes=len(html.encode()),
        n_rows=evidence.selected.select(pl.len()).collect().item(),
        n_models=evidence.cells["model"].n_unique(),
        n_platforms=len(evidence.shown.names),
        answer=answer_sentences(tables.fleet),
    )


def render_page(evidence: Evidence, now: datetime, tables: PageTables | None = None) -> str:
    """The page as text; the template escapes every value. Without tables it computes them."""
    tables = tables or page_tables(evidence)
    turns = rank_series(evidence)
    sections = page_sections(evidence, tables, has_turns=bool(turns))
    data = page_data(evidence, tables) | {"turns": turns}
    every = [table for section in sections for table in section.tables]
    data["specs"] = chart_specs(*_CHARTS)
    data["tables"] = {table.id: table.packed for table in every if table.packed is not None}
    folder = resources.files("fleetrank.analysis").joinpath(TEMPLATES)
    own = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)
    page_js, bundle = f"(function () {{\n{own}\n}})();", script_bundle()
    return (
        templates()
        .get_template("page.html.j2")
        .render(
            title="fleetrank transfer report",
            question="Is it also faster for your users?",
            has_answer=tables.fleet is not None,
            sentences=answer_sentences(tables.fleet),
            why_none=tables.why_no_fleet,
            facts=_head_facts(evidence.cells, now),
            banner=banner(evidence.cells, sections),
            workloads=other_workloads(evidence),
            sections=sections,
            families=_legend(evidence.shown.cells),
            words={word: meaning.replace("`", "") for word, meaning in TERMS.items()},
            footer=" ".join(evidence.said),
            css=Markup(folder.joinpath("page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own
            script_hashes=f"{script_hash(bundle)} {script_hash(page_js)}",
            data=json_block(data),
            bundle=own_script(bundle),
            page_js=own_script(page_js),
        )
    )


def other_workloads(evidence: Evidence) -> str:
    """Which workload the page is about, and how to see the others; empty for images alone."""
    others = [one for one in evidence.workloads if one != evidence.workload]
    if evidence.workload == str(IMAGE) and not others:
        return ""
    about = f"This page is about workload {evidence.workload}."
    if not others:
        return about
    is_real = set(evidence.selection.origins) <= set(DEFAULT_ORIGINS)
    unreal = "" if is_real else " and `include_simulated=true`"
    command = with_flags(f"`fleetrank report build` with `workload={others[0]}`{unreal}")
    return f"{about} The results also have {', '.join(others)}: make another page with {command}."


def _legend(cells: pl.DataFrame) -> list[dict[str, str]]:
    """Name, colour and symbol of each family that the cells have."""
    present = set(cells["family"].fill_null(NO_FAMILY))
    return [
        {"name": name.replace("_", " "), "colour": mark.colour, "path": mark.path}
        for name, mark in FAMILY_MARKS.items()
        if name in present
    ]


def _head_facts(cells: pl.DataFrame, now: datetime) -> list[str]:
    """How much the page covers, and when it was measured and built."""
    first = cells["started_utc"].drop_nulls().min()
    measured = f"measured {first:%Y-%m-%d}" if isinstance(first, datetime) else "time not recorded"
    return [
        count_of(cells["model"].n_unique(), "model"),
        count_of(cells["platform_key"].n_unique(), "platform"),
        count_of(cells["device"].n_unique(), "device"),
        *([f"all on {common}"] if (common := platform_labels(cells).common) else []),
        measured,
        f"page built {time_text(now)}",
    ]


def banner(cells: pl.DataFrame, sections: Sequence[Section]) -> str | None:
    """A warning if some values are of simulated or virtual devices.

    Args:
        cells: the values of the page's workload.
        sections: of the page; some draw values of other workloads.
    """
    unreal, parts = unreal_rows(cells), []
    if not unreal.is_empty():
        kinds = kinds_of(unreal["origin"])
        parts.append(
            f"{unreal.height} of {cells.height} values are {kinds}, those of {devices_of(unreal)}"
        )
    parts += _of_sections(sections, set(unreal["device"]))
    if not parts:
        return None
    text = "; ".join(parts)
    return (
        f"{text[0].upper()}{text[1:]}: they show how this page works. They are not evidence about "
        "hardware."
    )


def _of_sections(sections: Sequence[Section], named: Collection[str]) -> list[str]:
    """Which sections draw other devices that are not real, beside those that are named."""
    found = {}
    for section in sections:
        if section.drawn is not None:
            rows = unreal_rows(section.drawn).select("device", "origin")
            found[section.title] = rows.filter(~pl.col("device").is_in(list(named)))
    found = {title: rows for title, rows in found.items() if not rows.is_empty()}
    if not found:
        return []
    rows = pl.concat(found.values())
    named = ", ".join(f"'{title}'" for title in found)
    where = f"section {named} draws" if len(found) == 1 else f"sections {named} draw"
    return [f"{where} values that are {kinds_of(rows['origin'])}, those of {devices_of(rows)}"]
