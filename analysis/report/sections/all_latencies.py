"""The latency of every model on every platform of the page, as one table."""

import math
from collections.abc import Mapping

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import HtmlCell, HtmlHead, HtmlRow, HtmlTable
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.report.sections.sections import Section
from fleetrank.analysis.report.shown import Shown
from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.wording import count_of

_STEPS = 5
"""Shades in `page.css`, from the fastest to the slowest value in equal steps of the logarithm."""
_PER_MS = 1e6
Latencies = Mapping[tuple[str, str], float]


def matrix_section(evidence: Evidence, tables: PageTables) -> Section:
    """Models as rows, platforms as columns; it needs no script."""
    del tables
    return Section(
        id="matrix",
        short="All latencies",
        title="Every model on every platform, in ms",
        lead=(
            "The darker a cell, the slower the model. A dash means that the model was not measured "
            "on the platform.",
        ),
        tables=(latency_matrix(evidence.shown),),
    )


def latency_matrix(shown: Shown) -> HtmlTable:
    """Models as rows, platforms as columns, ms; the order is that of the page.

    It has at most `shown.MAX_CELLS` measured values, whatever the number of stored rows.
    """
    of_cell = {
        (str(model), str(key)): value / _PER_MS
        for model, key, value in shown.cells.select(
            "model", "platform_key", "latency_ns"
        ).iter_rows()
        if value is not None and value > 0
    }
    families = dict(shown.cells.select("model", "family").iter_rows())
    return HtmlTable(
        id="matrix",
        caption="Latency, ms: models by platforms",
        heads=(
            HtmlHead(text="model", is_number=False),
            *(
                HtmlHead(text=label, is_number=True, platform=str(number))
                for number, label in enumerate(shown.platforms.values())
            ),
        ),
        rows=tuple(_row(model, families[model], shown, of_cell) for model in shown.models),
        is_open=True,
        is_matrix=True,
        count=count_of(len(shown.models), "row"),
    )


def _row(model: str, family: str | None, shown: Shown, of_cell: Latencies) -> HtmlRow:
    low, high = min(of_cell.values(), default=1.0), max(of_cell.values(), default=1.0)
    values = (of_cell.get((model, key)) for key in shown.platforms)
    cells = (
        HtmlCell(text=value_text(value, is_grouped=True), shade=_shade(value, low, high))
        for value in values
    )
    about = {"model": model} | ({} if family is None else {"family": family})
    return HtmlRow(cells=(HtmlCell(text=model), *cells), about=about)


def _shade(value: float | None, low: float, high: float) -> int | None:
    """From 0, the fastest, to `_STEPS` - 1; `None` without a value."""
    if value is None:
        return None
    if high <= low:
        return 0
    return min(int(_STEPS * math.log(value / low) / math.log(high / low)), _STEPS - 1)
