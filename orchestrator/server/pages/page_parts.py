"""Rows of JSON as cells of a page, and templates to responses; every value is escaped."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from importlib import resources
from typing import Any
from urllib.parse import urlencode

import jinja2
from starlette.responses import HTMLResponse

from fleetrank.analysis.report.page import script_bundle, shown
from fleetrank.analysis.tables.brief_notes import split_notes
from fleetrank.analysis.tables.values import heading, value_text
from fleetrank.foundation.wording import duration
from fleetrank.orchestrator.progress.wording import counted_from_one

MAX_ROWS = 1000
"""Maximum number of rows on a page; the API returns all rows."""
_NUMBERS = (int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One cell; `href` leads to the page about it."""

    text: str
    is_number: bool = False
    href: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTable:
    """A table for the template."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[GridCell, ...], ...]
    notes: tuple[str, ...]
    explanation: tuple[str, ...]
    n_rows: int


_PAGES: Mapping[str, tuple[str, str]] = {
    "model": ("/model", "name"),
    "device": ("/device", "name"),
    "sweep_id": ("/sweep", "name"),
}


def grid(
    title: str,
    rows: Sequence[Mapping[str, object]],
    notes: Iterable[str] = (),
    *,
    explanation: Iterable[str] = (),
    links: Mapping[str, tuple[str, str]] = _PAGES,
) -> GridTable:
    """Makes a table from rows with equal keys; empty columns are left out.

    Args:
        title: the caption.
        rows: JSON values.
        notes: shown below, in at most three sentences.
        explanation: folded below the notes, after the other notes.
        links: column to the path of the page about its value and the name of its parameter.
    """
    shown = rows[:MAX_ROWS]
    names = [name for name in (rows[0] if rows else {}) if _is_filled(name, rows)]
    numbers = {name for name in names if _is_number(name, rows)}
    brief, others = split_notes(tuple(notes))
    shown_notes = [*brief]
    if len(rows) > MAX_ROWS:
        shown_notes.append(f"The first {MAX_ROWS} of {len(rows)} rows; the API returns all rows.")
    return GridTable(
        title=title,
        heads=tuple(map(heading, names)),
        rows=tuple(
            tuple(_cell(name, row[name], links, is_number=name in numbers) for name in names)
            for row in shown
        ),
        notes=tuple(shown_notes),
        explanation=(*others, *explanation),
        n_rows=len(rows),
    )


def table_grid(table: Mapping[str, Any]) -> GridTable:
    """The grid of a table as JSON; repeats and attempts count from 1."""
    rows = [*map(counted_from_one, table["rows"])]
    return grid(table["title"], rows, table["notes"], explanation=table["explanation"])


def facts_grid(title: str, facts: Mapping[str, object]) -> GridTable:
    """Makes a table of names and values, one pair per row; unknown values are left out."""
    rows = [{"fact": name, "value": value} for name, value in facts.items() if value is not None]
    return grid(title, rows)


def _is_filled(name: str, rows: Sequence[Mapping[str, object]]) -> bool:
    return any(row.get(name) not in (None, []) for row in rows)


def _is_number(name: str, rows: Sequence[Mapping[str, object]]) -> bool:
    known = [row[name] for row in rows if row.get(name) is not None]
    return all(isinstance(value, _NUMBERS) and not isinstance(value, bool) for value in known)


def _cell(
    name: str, value: object, links: Mapping[str, tuple[str, str]], *, is_number: bool
) -> GridCell:
    href = None
    if name in links and isinstance(value, str):
        path, parameter = links[name]
        href = f"{path}?{urlencode({parameter: value})}"
    return GridCell(text=_text(name, value), is_number=is_number, href=href)


def _text(name: str, value: object) -> str:
    if name.endswith("_utc") and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return value_text(datetime.fromisoformat(value))
    return value_text(value, is_grouped=True)


_DATA = """"use strict";
const data = JSON.parse(document.getElementById("data").textContent), specs = data.specs;"""
"""What `chart.js` needs, as the first script of the report has it."""


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fleetrank.orchestrator", "server/templates"),
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    environment.filters["value"] = partial(value_text, is_grouped=True)
    return environment


def render(template: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Returns a page; the values have the names that the template uses."""
    return HTMLResponse(_environment().get_template(template).render(values), status)


@cache
def asset(name: str) -> str:
    """Returns a style sheet or script.

    Raises:
        FileNotFoundError: no asset has this name.
    """
    if name == "vega.js":
        return script_bundle()
    if name == "time.js":
        parts = "\n".join(_of_report(part) for part in ("chart.js", name))
        return f"{_DATA}\n{parts}"
    if name == "page.css":
        # The style sheet of the report, so that both look the same.
        return _of_report(name)
    folder = resources.files("fleetrank.orchestrator").joinpath("server/assets")
    return folder.joinpath(name).read_text(encoding="utf-8")


def _of_report(name: str) -> str:
    folder = resources.files("fleetrank.analysis").joinpath("report/templates")
    return folder.joinpath(name).read_text(encoding="utf-8")
