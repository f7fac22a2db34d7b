"""The page: one HTML file that opens without a network and contains all its data."""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2
import polars as pl
from markupsafe import Markup

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.report import page_head
from fleetrank.analysis.report.evidence import Evidence, gather
from fleetrank.analysis.report.page_data import page_data
from fleetrank.analysis.report.page_tables import PageTables, page_tables
from fleetrank.analysis.report.sections.all_latencies import matrix_section
from fleetrank.analysis.report.sections.component_bars import component_sections
from fleetrank.analysis.report.sections.growth import growth_sections
from fleetrank.analysis.report.sections.headline import READING, family_lines, headlines
from fleetrank.analysis.report.sections.host_section import host_sections
from fleetrank.analysis.report.sections.one_pair import pair_section
from fleetrank.analysis.report.sections.prompts_and_steps import (
    other_workloads,
    phase_headlines,
    reading_sections,
    token_sections,
)
from fleetrank.analysis.report.sections.provenance import provenance_section
from fleetrank.analysis.report.sections.ranks_in_rounds import rank_series, ranks_in_rounds_sections
from fleetrank.analysis.report.sections.sections import (
    Section,
    dropped_section,
    flops_section,
    frontier_section,
    latency_section,
    memory_section,
    quality_section,
    transfer_section,
)
from fleetrank.analysis.report.sections.study import study_tables
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.glossary import TERMS
from fleetrank.foundation.files import make_folder, replace_file
from fleetrank.foundation.visible_text import visible

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def script_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs no network.

    Raises:
        AnalysisError: the drawing library is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise AnalysisError(
            "the page needs the drawing library, which is not installed",
            "install it: pip install 'fleetrank[report]'",
        ) from error
    return str(vl_convert.javascript_bundle(_SNIPPET))


def chart_specs(*names: str) -> dict[str, object]:
    """The Vega-Lite specifications of charts, and their common style `look`.

    A specification names its points (`datasets`) and has holes, `{"$": "name"}`, for what depends
    on them; `templates/chart.js` fills both.
    """
    folder = resources.files("fleetrank.analysis").joinpath(_TEMPLATES)
    files = {"look": "look.json"} | {name: f"{name}.vl.json" for name in names}
    return {
        name: json.loads(folder.joinpath(file).read_text(encoding="utf-8"))
        for name, file in files.items()
    }


def json_block(value: object) -> Markup:
    """JSON for a `<script type="application/json">`: nothing in it can end the block.

    Source: HTML standard, 4.12.1.3: inside a script a parser looks only for `<`.
    """
    text = _dumped(value)
    # Characters that JSON escapes must be shown in the same way as in the rest of the page.
    if "\\" in text or visible(text) != text:
        text = _dumped(_visible_parts(value))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def shown(value: object) -> object:
    """The text that a template writes for a value; characters that change direction are escaped.

    It is the `finalize` of a Jinja environment; markup is not changed.
    """
    return visible(value) if type(value) is str else value


def _dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _visible_parts(value: object) -> object:
    """Escapes all text in a value like `shown`: the script compares it with text in templates."""
    if isinstance(value, dict):
        return {shown(key): _visible_parts(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_visible_parts(part) for part in value]
    return shown(value)


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


_TEMPLATES = "report/templates"
_SCRIPTS = (
    "state.js", "chart.js", "look.js", "latency.js", "memory.js", "ranks.js", "matrix.js",
    "frontiers.js", "pair.js", "host.js", "tokens.js", "components.js", "growth.js", "reading.js",
    "panels.js",
    "tables.js", "copying.js", "table_tools.js", "filters.js", "start.js",
)  # fmt: skip
"""The files are joined to one script. A file may use names from the files before it."""
_SECTIONS: tuple[Callable[[Evidence, PageTables], Section], ...] = (
    transfer_section, pair_section, frontier_section, flops_section, matrix_section,
    latency_section, memory_section, quality_section, dropped_section,
)  # fmt: skip
"""The order follows a reader's questions; provenance is last."""
_CHARTS = (
    "latency", "memory", "ranks", "matrix", "frontier", "pair", "host", "turns", "rates",
    "contexts", "components", "scaling", "sustained", "reading",
)  # fmt: skip
_OF_RANKS = ("transfer", "frameworks")


_EVERY_ROW = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """Facts about the page that was written."""

    path: Path
    size_bytes: int
    n_rows: int
    n_models: int
    n_platforms: int


def build_report(
    results: Path,
    out: Path,
    *,
    selection: Selection = _EVERY_ROW,
    is_predicted: bool = False,
) -> ReportFacts:
    """Writes the page about a results folder to `out`; an older page is replaced at the end.

    A page is about one workload: that of the selection, or `image`, or else the first one.

    With `is_predicted` it also shows predicted latencies where a platform lacks a model.

    Raises:
        NoDataError: no data to report exists.
        AnalysisError: the folder is from a newer version, the drawing library is missing, or
            `out` cannot be written.
    """
    evidence = gather(results, selection)
    html = render_page(evidence, datetime.now(UTC), is_predicted=is_predicted)
    _write(out, html)
    return ReportFacts(
        path=out,
        size_bytes=len(html.encode()),
        n_rows=evidence.selected.select(pl.len()).collect().item(),
        n_models=evidence.cells["model"].n_unique(),
        n_platforms=len(evidence.shown.names),
    )


def render_page(evidence: Evidence, now: datetime, *, is_predicted: bool = False) -> str:
    """The page as text; the template escapes every value."""
    tables = page_tables(evidence, is_predicted=is_predicted)
    turns = rank_series(evidence)
    sections = [
        *(make(evidence, tables) for make in _SECTIONS),
        *host_sections(evidence, tables),
        *ranks_in_rounds_sections(turns),
        *token_sections(evidence, tables),
        *reading_sections(evidence, tables),
        *component_sections(evidence, tables),
        *growth_sections(evidence, tables),
        provenance_section(evidence),
    ]
    data = page_data(evidence, tables) | {"turns": turns}
    why_none = [text for name, text in tables.reasons.items() if name in _OF_RANKS]
    every = [table for section in sections for table in section.tables]
    data["specs"] = chart_specs(*_CHARTS)
    data["tables"] = {table.id: table.packed for table in every if table.packed is not None}
    folder = resources.files("fleetrank.analysis").joinpath(_TEMPLATES)
    own = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)
    page_js, bundle = f"(function () {{\n{own}\n}})();", script_bundle()
    environment = jinja2.Environment(
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.from_string(folder.joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title="fleetrank transfer report",
        question="Can I trust my reference device?",
        facts=page_head.facts(evidence.cells, now),
        banner=page_head.banner(evidence.cells, sections),
        doubts=page_head.doubts(evidence.cells),
        headlines=[*headlines(tables.ranks, " ".join(why_none)), *phase_headlines(tables)],
        workloads=other_workloads(evidence),
        reading=READING,
        family_lines=family_lines(tables.predictability),
        sections=sections,
        studies=study_tables(evidence, tables),
        families=page_head.legend(evidence.shown.cells),
        words={word: meaning.replace("`", "") for word, meaning in TERMS.items()},
        footer=" ".join(evidence.said),
        css=Markup(folder.joinpath("page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own
        script_hashes=f"{script_hash(bundle)} {script_hash(page_js)}",
        data=json_block(data),
        bundle=own_script(bundle),
        page_js=own_script(page_js),
    )


def _write(out: Path, html: str) -> None:
    make_folder(out.parent)
    replace_file(out, html.encode())
