"""The reference of what is stored and shown: columns with their units, and tables."""

import inspect
from collections.abc import Iterator
from html import escape

from fleetrank.analysis.sql import EVERY_ROW, ROWS_OF_TABLES, ViewColumn, described_views
from fleetrank.analysis.stored.columns import SCHEMA_VERSION
from fleetrank.analysis.tables.explanations import parts_of
from fleetrank.analysis.tables.table_settings import Setting
from fleetrank.analysis.tables.tables import TABLES, table_function

_VIEWS = {
    "measurements": "Every attempt at every repeat, failed ones included, that the tables use: "
    "those of simulated and virtual devices, and those excluded by hand, are not in it.",
    "devices": "The newest facts of each device.",
    "models": "The newest facts of each model.",
    "sweeps": "One row for each sweep.",
}


def columns_page() -> str:
    """Markdown: each column of each relation that `fleetrank query` knows."""
    described = described_views()
    parts = [
        "# Columns",
        "What `fleetrank query` can ask, made from the definition itself; `fleetrank query "
        "--tables` lists the same. The Parquet files under `results/` hold the columns of "
        f"`measurements` (schema version {SCHEMA_VERSION}) but `excluded`, which is made when they "
        "are read. Null means not known or not applicable, never 0.",
    ]
    for view, text in _VIEWS.items():
        rows = [_column_row(column) for column in described if column.view == view]
        header = ["| column | type | unit | meaning |", "|---|---|---|---|"]
        parts += [f"## {view}", text, "\n".join([*header, *rows])]
        if view == ROWS_OF_TABLES:
            parts += [f"## {EVERY_ROW}", "Every stored row, with the same columns."]
    return "\n\n".join(parts) + "\n"


def _column_row(column: ViewColumn) -> str:
    cells = (f"`{column.column}`", column.dtype, column.unit or "", column.doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def tables_page() -> str:
    """Markdown: each table of `fleetrank report show`, and its settings."""
    rows = []
    for name, spec in TABLES.items():
        settings = "; ".join(map(_setting, spec.settings)).replace("|", "\\|")
        rows.append(f"| `{name}` | {_summary(name)} | {settings} |")
    return "\n".join(
        [
            "# Tables",
            "",
            "`fleetrank report show NAME` prints one; [read the tables](../analysis.md) says which "
            "one answers a question and when it misleads.",
            "",
            "| table | what it shows | settings |",
            "|---|---|---|",
            *rows,
            "",
            "A setting with words is an option (`--along runtime`); the others are given with "
            "`--set NAME=VALUE`.",
            "",
            *(line for name in TABLES for line in _explanation(name)),
        ]
    )


def _explanation(table: str) -> Iterator[str]:
    """What `--explain` prints of a table, part by part."""
    parts = parts_of(table)
    if parts:
        yield from (f"## {table}", "")
    for part, paragraphs in parts.items():
        if len(parts) > 1:
            yield from (f"**{part}**", "")
        for paragraph in paragraphs:
            shown = escape(paragraph, quote=False).replace("*", "\\*")
            yield from (f"- {shown}", "")


def _setting(one: Setting) -> str:
    """Its name, with the words in place of `--set`."""
    words = [f"{word} (default)" if word == one.default else word for word in one.words]
    if words:
        return f"`--{one.name}` {', '.join(words)}"
    return f"`{one.name}`: {one.meaning}"


def _summary(name: str) -> str:
    """The first sentence of the function that makes the table."""
    text = inspect.getdoc(table_function(name)) or ""
    return text.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
