"""The reference of what is stored and shown: columns with their units, and tables."""

from collections.abc import Iterator
from html import escape

from fleetrank.analysis.sql_views import EVERY_ROW, ROWS_OF_TABLES, ViewColumn, described_views
from fleetrank.analysis.stored.columns import SCHEMA_VERSION
from fleetrank.analysis.tables.table import parts_of
from fleetrank.analysis.tables.tables import TABLES, Setting, TableSpec

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
    """Markdown: the question of each table of `fleetrank report show`, its parts and settings."""
    intro = [
        "# Tables",
        "",
        "`fleetrank report show NAME --part PART` prints one, or without `--part` its first part. "
        "[Read the tables](../analysis.md) says which one answers a question and when it misleads.",
        "",
        "| table | question |",
        "|---|---|",
        *(f"| [`{name}`](#{name}) | {spec.question} |" for name, spec in TABLES.items()),
        "",
    ]
    return "\n".join([*intro, *(line for spec in TABLES.values() for line in _table(spec))])


def _table(spec: TableSpec) -> Iterator[str]:
    """Its parts, its settings, and what `--explain` prints of each part."""
    yield from (f"## {spec.name}", "", spec.question, "", "| part | shows |", "|---|---|")
    yield from (f"| `{part}` | {one.shows} |" for part, one in spec.parts.items())
    yield ""
    if spec.settings:
        yield from ("| setting | parts | meaning |", "|---|---|---|")
        yield from map(_setting, spec.settings.values())
        yield ""
    for part, paragraphs in parts_of(spec.name).items():
        yield from (f"**{part}**", "")
        for paragraph in paragraphs:
            shown = escape(paragraph, quote=False).replace("*", "\\*")
            yield from (f"- {shown}", "")


def _setting(one: Setting) -> str:
    words = [f"{word} (default)" if word == one.default else word for word in one.words]
    text = f"{one.meaning}: {', '.join(words)}" if words else one.meaning
    parts = ", ".join(one.parts) or "all"
    return f"| `--{one.name.replace('_', '-')}` | {parts} | {text.replace('*', chr(92) + '*')} |"
