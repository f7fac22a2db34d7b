"""Tables of the analysis as HTML cells: rounded figures and short names of platforms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.labels import Labels
from fleetrank.analysis.report.shown import SUBJECTS, Shown
from fleetrank.analysis.tables.brief_notes import split_notes
from fleetrank.analysis.tables.glossary import meaning_of_column
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import TABLES, TableRequest
from fleetrank.analysis.tables.text_columns import column_texts, grid_of_rows
from fleetrank.analysis.tables.values import heading
from fleetrank.foundation.wording import count_of

MAX_STATIC_ROWS = 40
"""Rows written as HTML; in a longer table the page's script writes the others."""
MAX_ROWS = 8000
"""The page shows no more rows; `report show` prints all."""
Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlHead:
    """A column's heading.

    Attributes:
        hint: the meaning of its word, if the glossary has it.
        platform: number of the platform that the column is about; a filter hides the column.
    """

    text: str
    is_number: bool
    hint: str | None = None
    platform: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlCell:
    """A cell; `hint` is shown on hover, `shade` is a number of the style sheet's shades."""

    text: str
    is_number: bool = False
    hint: str | None = None
    shade: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlRow:
    """A row; `about` is the result of `Shown.subjects`."""

    cells: tuple[HtmlCell, ...]
    about: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlTable:
    """The text of a table; the template escapes it.

    Attributes:
        id: key of the table's rows in the page's data.
        rows: the first of them, at most `MAX_STATIC_ROWS`.
        packed: all rows for the page's script, if there are more; see `_packed`.
        is_statistic: its figures use all models, platforms or both; a filter does not change them.
        is_matrix: every column but the first is about a platform and holds numbers.
    """

    id: str
    caption: str
    heads: tuple[HtmlHead, ...]
    rows: tuple[HtmlRow, ...]
    packed: Json | None = None
    notes: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()
    is_open: bool = False
    is_statistic: bool = False
    is_matrix: bool = False
    count: str = ""


def html_of_rows(
    name: str, caption: str, rows: Sequence[Mapping[str, object]], notes: Iterable[str] = ()
) -> HtmlTable:
    """Turns rows with equal keys into cells; all of them are written as HTML."""
    grid = grid_of_rows(rows, has_headings=True, is_grouped=True)
    numbers = [column in grid.numbers for column in grid.columns]
    return HtmlTable(
        id=name,
        caption=caption,
        heads=tuple(
            HtmlHead(text=heading(title), is_number=is_number)
            for title, is_number in zip(grid.columns, numbers, strict=True)
        ),
        rows=tuple(
            HtmlRow(
                cells=tuple(
                    HtmlCell(text=text, is_number=is_number)
                    for text, is_number in zip(texts, numbers, strict=True)
                ),
                about={},
            )
            for texts in grid.lines[1:]
        ),
        notes=tuple(notes),
        count=count_of(len(rows), "row"),
    )


def table_request(name: str) -> TableRequest:
    """The request of a name on the page, such as `trust/dropped` or `transfer along=runtime`."""
    table, *settings = name.split()
    pairs = (one.partition("=") for one in settings)
    return TableRequest(name=table, settings=tuple((key, word) for key, _, word in pairs))


def html_table(
    name: str,
    table: Table,
    shown: Shown,
    *,
    is_open: bool = False,
    is_statistic: bool = False,
    said: Iterable[str] = (),
) -> HtmlTable:
    """Turns a table into cells; a platform has its short name, with its key as the hint.

    Args:
        name: its name and settings; its id on the page is made of them.
        table: a result of `analysis.tables.tables.make_table`.
        shown: rows about other models or platforms are left out, with a note.
        is_open: whether the table is open at first.
        is_statistic: see `HtmlTable`.
        said: notes that are already elsewhere on the page.
    """
    request, frame = table_request(name), table.for_people(Labels({})).frame
    if frame.height:
        # Without hashes and empty columns; `report show` prints all columns.
        empty = [one.name for one in frame.iter_columns() if one.null_count() == len(one)]
        frame = frame.drop([*empty, "cell_key"], strict=False)
    already = set(said)
    brief, others = split_notes([note for note in table.notes if note not in already])
    notes = [*brief]
    subjects = [shown.subjects(row) for row in frame.iter_rows(named=True)]
    kept = [number for number, about in enumerate(subjects) if about is not None][:MAX_ROWS]
    if len(kept) < frame.height:
        is_known = request.table in TABLES
        remedy = f"; `fleetrank report show {request.words}` prints all" if is_known else ""
        notes.append(f"{len(kept):,} of {frame.height:,} rows are on this page{remedy}.")
    frame, about = frame[kept], [subjects[number] or {} for number in kept]
    labels = Labels(shown.names)
    columns = [_column(frame, title, labels) for title in frame.columns]
    head = range(min(frame.height, MAX_STATIC_ROWS))
    return HtmlTable(
        id=request.file_stem,
        caption=table.title,
        heads=tuple(
            HtmlHead(
                text=heading(title), is_number=dtype.is_numeric(), hint=meaning_of_column(title)
            )
            for title, dtype in frame.schema.items()
        ),
        rows=tuple(
            HtmlRow(cells=tuple(column.cell(at) for column in columns), about=about[at])
            for at in head
        ),
        packed=_packed(columns, about) if frame.height > MAX_STATIC_ROWS else None,
        notes=tuple(notes),
        explanation=(*others, *table.explanation),
        is_open=is_open,
        is_statistic=is_statistic,
        count=f"{frame.height} row" if frame.height == 1 else f"{frame.height:,} rows",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column as texts; `hints` has longer texts for some of them."""

    texts: list[str]
    hints: Mapping[str, str]
    is_number: bool

    def cell(self, at: int) -> HtmlCell:
        text = self.texts[at]
        return HtmlCell(text=text, is_number=self.is_number, hint=self.hints.get(text))


def _column(frame: pl.DataFrame, name: str, labels: Labels) -> _Column:
    texts = column_texts(frame, name, is_grouped=True)
    short = (
        {text: labels.said(text) for text in dict.fromkeys(texts)}
        if frame[name].dtype == pl.String
        else {}
    )
    return _Column(
        texts=[short.get(text, text) for text in texts],
        hints={label: key for key, label in short.items() if key in labels.names},
        is_number=frame[name].dtype.is_numeric(),
    )


def _packed(columns: Sequence[_Column], about: Sequence[Mapping[str, str]]) -> Json:
    """Columns of texts, each text once: most of a table's texts are names, flags and dashes."""
    return {
        "about": {
            kind: _coded([row.get(kind, "") for row in about])
            for kind in SUBJECTS
            if any(kind in row for row in about)
        },
        "columns": [
            {"number": column.is_number, "hints": dict(column.hints), **_coded(column.texts)}
            for column in columns
        ],
    }


def _coded(texts: Sequence[str]) -> Json:
    words = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    if 2 * len(words) > len(texts):
        return {"texts": list(texts)}
    return {"words": list(words), "codes": [words[text] for text in texts]}
