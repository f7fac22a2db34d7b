"""The public API of `import fleetrank`; everything below it may change.

A path is a `str` or a `pathlib.Path`. Every error is a `FleetError` with `message` and `remedy`,
also for an argument of the wrong type. Messages name a choice as Python does: `` `source=` ``.
Libraries are imported when a function needs them, so that importing the package costs nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.argument_checks import (
    count_given,
    instance_of,
    number_of,
    path_of,
    text_of,
)
from fleetrank.foundation.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from fleetrank.analysis.report.charts import PaperFigure
    from fleetrank.analysis.report.page import ReportFacts
    from fleetrank.analysis.statistics.pairs.pair_answer import PairAnswer
    from fleetrank.analysis.stored.selection import Named, Selection
    from fleetrank.analysis.tables.table import Table

    __version__: str

__all__ = [
    "FleetError", "Selection", "__version__", "faster", "figure", "figures", "load", "predict",
    "query", "render", "report", "table", "tables",
]  # fmt: skip

_LONGEST_QUERY_S = 86_400.0
"""A day; Python's timers cannot wait for much longer than a hundred years."""
_MOST_ROWS = 2**63 - 1
"""The largest limit that SQL knows."""


def __getattr__(name: str) -> object:
    """What costs time to import is imported at its first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version("fleetrank")
    if name == "Selection":
        from fleetrank.analysis.stored.selection import Selection

        return Selection
    raise AttributeError(f"module 'fleetrank' has no attribute '{name}'")


def __dir__() -> list[str]:
    """The public names, without what this module needs itself."""
    return __all__


def load(results: str | Path, *, sweep: Named = None) -> pl.LazyFrame:
    """Scans every stored attempt, failures included; one row per attempt.

    Args:
        results: the folder `results/` of a workspace.
        sweep: id of one sweep, or several; `tag:NAME` means the sweeps with this tag, `None` all.

    Returns:
        The columns of the reference page "Columns". The unit is the last part of a name; null
        means missing. Samples stay on disk until a query needs them.

    Raises:
        FleetError: no measurement, sweep or tag was found, or a newer fleetrank wrote the folder.
    """
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.stored.selection import names_of
    from fleetrank.analysis.stored.sweep_tags import tagged_sweeps
    from fleetrank.orchestrator.reading_errors import explained_errors

    folder = path_of("results", results)
    with explained_errors(folder):
        ids = tagged_sweeps(folder, names_of(sweep)) or None
        return load_measurements(folder, sweep=ids, origins=ORIGINS)


def tables() -> dict[str, tuple[str, ...]]:
    """The names that `table` takes, as `fleetrank report show` lists them, and their parts."""
    from fleetrank.analysis.tables.tables import TABLES

    return {name: tuple(spec.parts) for name, spec in TABLES.items()}


def table(
    name: str,
    results: str | Path,
    selection: Selection | None = None,
    *,
    part: str | None = None,
) -> Table:
    """Returns one table of `report show`: its title, its figures as a frame, and its notes.

    Args:
        name: one of `tables()`.
        results: the folder `results/` of a workspace.
        part: one of the table's parts; `None` is the first.
        selection: the rows to use; `None` selects all measured and imported rows. Its `sweep` may
            be `tag:NAME`.

    Raises:
        FleetError: the table is unknown or has no rows; the message has a remedy.
    """
    from fleetrank.analysis.tables.tables import make_table
    from fleetrank.orchestrator.reading_errors import explained_errors

    folder, chosen = path_of("results", results), _chosen(selection)
    asked = text_of("name", name)
    if part is not None:
        asked = f"{asked}/{text_of('part', part)}"
    with explained_errors(folder):
        frame, chosen = _rows(folder, chosen)
        return make_table(asked, frame, chosen, results=folder)


def render(table: Table, form: str = "markdown") -> str:
    """Returns a table as text: `table`, `markdown`, `latex`, `csv` or `json`.

    Raises:
        FleetError: the form is unknown, or `table` is not the result of `table` or `predict`.
    """
    from fleetrank.analysis.tables.formats import render as written
    from fleetrank.analysis.tables.table import Table

    return written(instance_of("table", table, Table), text_of("form", form))


def _chosen(selection: Selection | None) -> Selection:
    from fleetrank.analysis.stored.selection import Selection

    return Selection() if selection is None else instance_of("selection", selection, Selection)


def _rows(folder: Path, chosen: Selection) -> tuple[pl.LazyFrame, Selection]:
    """The rows of a selection, and it with the sweeps that its tags mean."""
    from dataclasses import replace

    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.stored.sweep_tags import tagged_sweeps

    chosen = replace(chosen, sweep=tagged_sweeps(folder, chosen.sweeps) or None)
    return load_measurements(folder, sweep=chosen.sweep, origins=chosen.origins), chosen


def predict(
    results: str | Path,
    device: str,
    *,
    quantity: str = "latency",
    coverage: float = 0.9,
    like: str | None = None,
    selection: Selection | None = None,
) -> Table:
    """Predicts every model on a device from its few measurements and all known devices.

    Args:
        results: the folder `results/` of a workspace.
        device: its name, or a platform key in which `*` matches any text.
        quantity: `latency`, `memory` or `energy`.
        coverage: share of intervals that hold the value of a measurement, from 0.5 to below 1.
        like: device, platform or pattern whose configuration a device without measurements has.
        selection: further choices, as for `table`; `None` uses all measured and imported rows.

    Raises:
        FleetError: the device is unknown, or nothing predicts it; the message has a remedy.
    """
    from dataclasses import replace

    text_of("device", device)
    chosen = _chosen(selection)
    settings = (
        ("quantity", text_of("quantity", quantity)),
        ("coverage", number_of("coverage", coverage, above=0, most=1)),
        ("like", "" if like is None else text_of("like", like)),
    )
    return table(
        "predict",
        results,
        replace(
            chosen,
            target=None if like else device,
            settings=(*chosen.settings, *settings),
        ),
    )


def faster(
    results: str | Path,
    a: str,
    b: str,
    *,
    users: Mapping[str, float] | None = None,
    selection: Selection | None = None,
) -> PairAnswer:
    """Is the model that is faster here also faster on the devices of users?

    Args:
        results: the folder `results/` of a workspace.
        a: name of a model.
        b: name of another.
        users: share of users by device or device model; they need not sum to 1.
        selection: the rows to use, as for `table`; its `source` chooses where the question is
            asked; `target`, `runtime` and `precision` choose the other platforms. The setting
            `quantity` compares `memory` or `energy` in place of latency.

    Raises:
        FleetError: no chosen platform measured both; the message has a remedy.
    """
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.statistics.pairs.pairs import faster as answer
    from fleetrank.orchestrator.reading_errors import explained_errors

    folder = path_of("results", results)
    names = text_of("a", a), text_of("b", b)
    shares = {
        text_of("a device", name): number_of(f"the share of {name}", one, above=0, most=math.inf)
        for name, one in (users or {}).items()
    }
    chosen = _chosen(selection)
    with explained_errors(folder):
        frame, chosen = _rows(folder, chosen)
        return answer(Session(frame, chosen, results=folder), *names, users=shares or None)


def query(
    results: str | Path, sql: str, *, timeout_s: float = 30.0, max_rows: int = 10_000
) -> pl.DataFrame:
    """Answers one SELECT over `measurements`, `devices`, `models` and `sweeps`.

    `measurements` has the rows that tables use; `all_measurements` also those of simulated and
    virtual devices, and those excluded by hand.

    Args:
        results: the folder `results/` of a workspace.
        sql: one statement.
        timeout_s: seconds until the query is interrupted, at most a day.
        max_rows: rows beyond it are left out.

    Raises:
        FleetError: not one SELECT, wrong SQL, or over a limit; the message names the problem.
    """
    from fleetrank.orchestrator.extras import require_libraries
    from fleetrank.orchestrator.reading_errors import explained_errors

    require_libraries("SQL", "analysis", "duckdb")
    from fleetrank.analysis.sql import run_query

    folder = path_of("results", results)
    text_of("sql", sql)
    limit_s = number_of("timeout_s", timeout_s, above=0, most=_LONGEST_QUERY_S)
    most = count_given("max_rows", max_rows, least=1, most=_MOST_ROWS)
    with explained_errors(folder):
        return run_query(folder, sql, timeout_s=limit_s, max_rows=most)


def figures() -> tuple[str, ...]:
    """The names that `figure` takes, as `fleetrank report build --figures` writes them."""
    from fleetrank.orchestrator.extras import require_libraries

    require_libraries("a figure", "report", "vl_convert")
    from fleetrank.analysis.report.paper_figures import FIGURES

    return tuple(FIGURES)


def figure(
    name: str, results: str | Path, selection: Selection | None = None, *, columns: int = 1
) -> PaperFigure:
    """Returns one figure for a paper: its `spec` for Vega-Lite, `data` and `caption`.

    Its methods `svg()`, `pdf()` and `png()` draw it. A notebook shows it.

    Args:
        name: one of `figures()`.
        results: the folder `results/` of a workspace.
        selection: the rows to use, as for `table`; `source` and `target` choose the platforms, and
            two models the pair of figure `answer`.
        columns: width of the figure, in columns of a page that has two: 1 or 2.

    Raises:
        FleetError: the figure is unknown, or the rows cannot give it; the message has a remedy.
    """
    from fleetrank.orchestrator.extras import require_libraries
    from fleetrank.orchestrator.reading_errors import explained_errors

    require_libraries("a figure", "report", "vl_convert")
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.report.charts import ONE_COLUMN_PX, TWO_COLUMNS_PX
    from fleetrank.analysis.report.paper_figures import make_figure

    folder, chosen = path_of("results", results), _chosen(selection)
    asked, n = text_of("name", name), count_given("columns", columns, least=1, most=2)
    with explained_errors(folder):
        frame, chosen = _rows(folder, chosen)
        width = ONE_COLUMN_PX if n == 1 else TWO_COLUMNS_PX
        return make_figure(asked, Session(frame, chosen, results=folder), width)


def report(results: str | Path, out: str | Path, selection: Selection | None = None) -> ReportFacts:
    """Writes the report page of a results folder to the file `out`.

    Args:
        results: the folder `results/` of a workspace.
        out: the file to write; an older one is replaced.
        selection: sweeps, workload, origins and seed of the page; `None` as for `table`.

    Raises:
        FleetError: there are no results, or `out` cannot be written.
    """
    from fleetrank.orchestrator.extras import require_libraries
    from fleetrank.orchestrator.reading_errors import explained_errors

    folder, page = path_of("results", results), path_of("out", out)
    require_libraries("the page", "report", "jinja2", "vl_convert")
    from fleetrank.analysis.report.page import build_report

    chosen = _chosen(selection)
    with explained_errors(folder):
        return build_report(folder, page, selection=chosen)
