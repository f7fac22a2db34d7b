"""Tables of the analysis as HTML cells: humane figures, and short names of platforms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from analysis.tables import Table

_MAX_ROWS = 400
"""More is not read on a page; `report show` prints all."""
_UNITS = {
    "ns": "ns", "us": "µs", "ms": "ms", "s": "s", "bytes": "bytes", "mib": "MiB", "mb": "MB",
    "mj": "mJ", "mhz": "MHz", "c": "°C", "percent": "%",
}  # fmt: skip
_MISSING = "\N{EN DASH}"
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlHead:
    """A column's heading."""

    text: str
    is_number: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlCell:
    """A cell; `hint` says more on hover."""

    text: str
    is_number: bool = False
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlTable:
    """What the template writes; text only, escaped there."""

    caption: str
    heads: tuple[HtmlHead, ...]
    rows: tuple[tuple[HtmlCell, ...], ...]
    notes: tuple[str, ...] = ()
    is_open: bool = False
    count: str = ""


def html_table(
    table: Table,
    names: Mapping[str, str],
    *,
    is_open: bool = False,
    said: Iterable[str] = (),
) -> HtmlTable:
    """Turns a table into cells.

    Args:
        table: as `analysis.tables.make_table` gives it.
        names: short names of platform keys; the key is then the hint.
        is_open: shown at once, not on demand.
        said: notes that the page has said elsewhere.
    """
    frame = _worth_showing(table.frame)
    already = set(said)
    notes = [note for note in table.notes if note not in already]
    if frame.height > _MAX_ROWS:
        notes.append(f"The first {_MAX_ROWS} of {frame.height} rows; `report show` prints all.")
    is_number = [dtype.is_numeric() for dtype in frame.dtypes]
    return HtmlTable(
        caption=table.title,
        heads=tuple(
            HtmlHead(text=heading(name), is_number=dtype.is_numeric())
            for name, dtype in frame.schema.items()
        ),
        rows=tuple(
            tuple(_cell(*pair, names=names) for pair in zip(row, is_number, strict=True))
            for row in frame.head(_MAX_ROWS).iter_rows()
        ),
        notes=tuple(notes),
        is_open=is_open,
        count=f"{frame.height} row" if frame.height == 1 else f"{frame.height} rows",
    )


def _worth_showing(frame: pl.DataFrame) -> pl.DataFrame:
    """Without hashes and without columns that say nothing; `report show` has them all."""
    empty = [column.name for column in frame.iter_columns() if column.null_count() == len(column)]
    return frame.drop([*empty, "cell_key"], strict=False) if frame.height else frame


def heading(name: str) -> str:
    """`latency_p50_ms` as `latency p50, ms`; `platform_key` as `platform`."""
    words = name.removeprefix("n_").removesuffix("_key").split("_")
    unit = _UNITS.get(words[-1]) if len(words) > 1 else None
    return f"{' '.join(words[:-1])}, {unit}" if unit else " ".join(words)


def number_text(value: float) -> str:
    """Four significant digits, no exponent in the range that people read."""
    is_grouped = 10**_DIGITS <= abs(value) < 1e6
    text = f"{value:,.0f}" if is_grouped else f"{value:.{_DIGITS}g}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if value < 0 else text


def _cell(value: object, is_number: bool, names: Mapping[str, str]) -> HtmlCell:
    if isinstance(value, bool | None):
        return HtmlCell(text={None: _MISSING, True: "yes", False: "no"}[value], is_number=is_number)
    if isinstance(value, int):
        return HtmlCell(text=f"{value:,}".replace("-", "\N{MINUS SIGN}"), is_number=True)
    if isinstance(value, float):
        return HtmlCell(text=number_text(value), is_number=True)
    text = _text(value)
    short = names.get(text)
    return HtmlCell(text=text) if short is None else HtmlCell(text=short, hint=text)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    if isinstance(value, list | tuple | pl.Series):
        return ", ".join(str(item) for item in value) or _MISSING
    return str(value)
