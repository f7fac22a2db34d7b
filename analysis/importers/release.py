"""The rows of one release of published results, and what every importer does to a row.

A row names its model as our card only by declaration, in `equivalence.toml` or in a user's mapping.
"""

import hashlib
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.column import Column
from fleetrank.analysis.stored.columns import COLUMNS, ROUNDED_SENTINELS, SENTINELS
from fleetrank.foundation.user_file import plain_number
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import OPEN_WORD
from fleetrank.foundation.wording import did_you_mean

EQUIVALENCE_TABLE = Path(__file__).with_name("equivalence.toml")

Row = dict[str, object]
"""Some columns of `analysis.stored.columns.SCHEMA`; keys and times are added when it is stored."""

IMPORT_STAGE = "import"
"""`error_stage` of a row of the source that no figure may use."""

NEEDED_COLUMNS = (
    "status", "model", "device", "tier", "runtime", "backend", "mode", "precision", "batch",
    "options", "source", "source_ref", "sample_kind", "statistic",
)  # fmt: skip
"""Each row has them; `None` where the source does not state one."""
_NEVER_EMPTY = ("status", "model", "device")
_COLUMNS = {column.name: column for column in COLUMNS}
_HELD: Mapping[type[pl.DataType], tuple[tuple[type, ...], str]] = {
    pl.String: ((str,), "a text"),
    pl.Int64: ((int,), "a whole number"),
    pl.Float64: ((int, float), "a number"),
    pl.Boolean: ((bool,), "true or false"),
    pl.List: ((list,), "a list"),
    pl.Datetime: ((str,), "a time as text"),
}
"""Type of a column to the values it holds."""
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII)
_NAMES = ("model", "device", "device_model", "tier", "backend", "runtime_version", "os")
LONGEST_NAME, LONGEST_TEXT = 200, 10_000
"""Letters. Cards have names of 100; a published one has its source before it."""
_MAX_COUNT = 2**62
"""Fits into 64 bits after any rounding."""
LATENCY_RANGE_NS = (1.0, 1e15)
"""A cycle of a processor, and 11 days."""
COUNT_RANGE = (0.0, float(_MAX_COUNT))
_LATENCIES = ("latency_p50_ns", "latency_mean_ns")
_SENTINEL_TOLERANCE = 1e-9
"""Of 2^64-1 written as a float or rounded by a printer."""
_SYMBOL_NAMES = {"+": " plus ", "*": " star "}
"""Characters that tell two products apart: Galaxy S23 and Galaxy S23+."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release of one source; it becomes a separate sweep.

    Attributes:
        version: of the release, letters, digits and dots.
        rows: every measurement of the source, those that no figure may use with status `failed`
            and the reason.
        evaluations: rows of the side table of that name; without `sweep_id`.
        aliases: names under which the source repeats a device, to the name it was imported as.
        notes: facts for readers of any figure from this release.
    """

    source: str
    version: str
    licence: str
    rows: tuple[Row, ...]
    evaluations: tuple[Row, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def require_complete(release: Release) -> None:
    """Returns if every row has the columns that the table needs, with values it can hold.

    Raises:
        AnalysisError: the importer made another row; the message names its number and its column.
    """
    for number, row in enumerate(release.rows, start=1):
        if (fault := _fault(row)) is not None:
            where = f"release {release.version} of {release.source}: row {number}"
            model = f" ({shortened(str(row['model']))})" if row.get("model") else ""
            raise AnalysisError(f"{where}{model} {fault[0]}", fault[1])


def _fault(row: Row) -> tuple[str, str] | None:
    """What is wrong with a row, and the remedy; the first fault found."""
    for name in NEEDED_COLUMNS:
        if name not in row or (name in _NEVER_EMPTY and not row[name]):
            return f"has no {name}", f"the importer must give each row {', '.join(NEEDED_COLUMNS)}"
    for name, value in row.items():
        column = _COLUMNS.get(name)
        if column is None:
            hint = did_you_mean(name, _COLUMNS)
            return f"has no column '{name}' of the table", f"{hint}see analysis/stored/columns.py"
        wanted = _wanted(column, value)
        if wanted is not None:
            shown = shortened(repr(value))
            return f"is wrong: {name} is {shown}", f"the importer must give {wanted}"
    return None


def _wanted(column: Column, value: object) -> str | None:
    """What a column holds, if this value cannot be stored in it."""
    if value is None:
        return None
    is_named = column.name == "runtime" and OPEN_WORD.fullmatch(str(value)) is not None
    if column.values is not None and not (
        is_named or isinstance(value, list) or value in column.values
    ):
        return f"one of {', '.join(column.values)}"
    kinds, words = _HELD[type(column.dtype)]
    is_truth = isinstance(value, bool) and bool not in kinds
    if is_truth or not isinstance(value, kinds):
        return words
    longest = LONGEST_NAME if column.name in _NAMES else LONGEST_TEXT
    if isinstance(value, str) and len(value) > longest:
        return f"a text of at most {longest:,} letters"
    if column.name in _LATENCIES and not is_possible(value, LATENCY_RANGE_NS):
        return "a latency from 1 ns to 10^6 s"
    return None


def drop(row: Row, reason: str, detail: str) -> Row:
    """The row as one that no figure uses, kept so that `trust --part dropped` lists it.

    `reason` is a few words that many rows share; `detail` is about this one.
    """
    return row | {
        "status": "failed",
        "error_kind": "bad_output",
        "error_stage": IMPORT_STAGE,
        "error_message": f"{reason}: {detail}",
        "error_remedy": "no action is possible; the published file has no more information",
        "error_is_transient": False,
        "latency_p50_ns": None,
        "latency_mean_ns": None,
    }


def drop_reason(row: Row) -> str | None:
    """The reason given to `drop`; `None` for a row that counts."""
    if row.get("status") != "failed":
        return None
    return str(row["error_message"]).partition(":")[0]


def read_number(text: object) -> float | None:
    """A figure as tables print it; `1,014.45` has a thousands comma.

    `None` for empty text, `null`, words, NaN and infinity: these are not measurements. So is what
    only Python takes for a number, such as `1_0` and digits of other scripts.
    """
    words = str(text).strip()
    if _GROUPED.fullmatch(words):
        words = words.replace(",", "")
    try:
        return plain_number(words)
    except ValueError:
        return None


def is_possible(value: object, limits: tuple[float, float]) -> bool:
    """Whether a figure is a number within its limits."""
    return isinstance(value, int | float) and limits[0] <= value <= limits[1]


def is_sentinel(value: float) -> bool:
    """Whether a figure in the source's unit is a code for 'missing'."""
    return value in SENTINELS or any(
        math.isclose(value, mark, rel_tol=_SENTINEL_TOLERANCE) for mark in ROUNDED_SENTINELS
    )


def device_names(source: str, published: Iterable[str], *, kept: str = "") -> Mapping[str, str]:
    """Our name for each published device name; two published names never share one.

    A name is `SOURCE-` and the published one in small letters, with words for `+` and `*`, and `-`
    for other characters that are not in `kept`. If two published names still have one name, all
    but the first in alphabetical order get the first digits of the sha256 of their published name.
    """
    same: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(published)):
        words = "".join(_SYMBOL_NAMES.get(character, character) for character in name.lower())
        slug = re.sub(rf"[^a-z0-9{re.escape(kept)}]+", "-", words).strip("-")
        same[slug or "unknown"].append(name)
    names = {}
    for slug, (first, *others) in same.items():
        names[first] = f"{source}-{slug}"
        for name in others:
            names[name] = f"{source}-{slug}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
    return names


def whole(value: float | None, factor: float = 1) -> int | None:
    """`value` x `factor` as a count; `None` without a value or if it is too large for the table."""
    if value is None or not abs(value * factor) <= _MAX_COUNT:
        return None
    return round(value * factor)


def file_reference(name: str, content: bytes) -> str:
    """A file by name and content, as `source_ref` keeps it."""
    return f"{name} sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A figure and its source."""

    value: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalences:
    """The declarations about the names of one source.

    Attributes:
        equal: name in the source to the name of our card.
        unequal: names that only look alike, to the reason.
        macs: multiply-accumulates of the cards.
        own_macs: those of networks that are no cards, by their name in the source.
    """

    source: str
    equal: Mapping[str, str]
    unequal: Mapping[str, str]
    macs: Mapping[str, PublishedFigure]
    own_macs: Mapping[str, PublishedFigure]


def load_equivalences(source: str) -> Equivalences:
    """The declarations for one source; empty for a source that is not in the table."""
    with EQUIVALENCE_TABLE.open("rb") as file:
        table = tomllib.load(file)
    mine = table.get(source, {})
    mine = table.get(mine.get("as"), mine)
    macs = {
        card: PublishedFigure(value=entry["value"], source=entry["published"])
        for card, entry in table["macs"].items()
    }
    own_macs = {
        name: PublishedFigure(value=value, source=where)
        for where, values in mine.get("macs", {}).items()
        for name, value in values.items()
    }
    return Equivalences(
        source=source,
        equal=mine.get("equal", {}),
        unequal=mine.get("unequal", {}),
        macs=macs,
        own_macs=own_macs,
    )


def named(row: Row, name: str, table: Equivalences) -> Row:
    """The row under the model's name here: our card's where declared, else `<source>:<name>`.

    A card's MACs replace the source's, so that a model has the same FLOPs in every source; those of
    another network only fill a gap.
    """
    card = table.equal.get(name)
    if card is None:
        own = table.own_macs.get(name) if row.get("flops") is None else None
        return (
            row
            | {"model": f"{table.source}:{name}"}
            | ({} if own is None else flops_columns(own.value, own.source))
        )
    derived = f"model: declared equal to card {card}, {name} in {table.source}"
    macs = table.macs.get(card)
    figures = {} if macs is None else flops_columns(macs.value, f"{macs.source}, by equivalence")
    listed = row.get("derived")
    return (
        row
        | {"model": card, "derived": [*(listed if isinstance(listed, list) else []), derived]}
        | figures
    )


def flops_columns(macs: int | None, source: str) -> Row:
    """Published MACs and FLOPs; empty without them."""
    if macs is None:
        return {}
    return {
        "macs": macs,
        "flops": 2 * macs,
        "flops_method": "published",
        "flops_source": source,
    }


def unequal_notes(names: set[str], table: Equivalences) -> tuple[str, ...]:
    """One sentence for each name of a source that is similar to a card but another network."""
    return tuple(
        f"{table.source}:{name} is kept apart: {why}."
        for name, why in sorted(table.unequal.items())
        if name in names
    )
