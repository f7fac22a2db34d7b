"""Fills what a source and our cards do not state about models, from a user's CSV file of facts."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from pydantic import TypeAdapter

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.release import (
    Row,
    file_reference,
    flops_columns,
    read_number,
    whole,
)
from fleetrank.analysis.stored.columns import FAMILIES
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.small_file import MAX_TYPED_BYTES, read_small_bytes
from fleetrank.foundation.user_file import Checked, Key, Short, checked, read_csv
from fleetrank.foundation.visible_text import shortened, visible_line
from fleetrank.foundation.wording import count_of, did_you_mean

_UNITS: Mapping[str, float] = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_FIGURE = re.compile(r"([0-9][0-9.,]*(?:e[+-]?[0-9]+)?) ?([A-Za-z]*)")
_EXAMPLE = "write a header, such as model,flops,params,accuracy,family"
_GROUPS = (
    ("flops", "macs", "flops_method", "flops_source"),
    ("parameters",),
    ("accuracy_top1", "accuracy_source"),
    ("family",),
    ("has_attention",),
)
"""Columns of the table that are filled together, where a row lacks the first of them."""
_SAME = 0.01
"""Published counts are rounded: figures that differ by less than this share are not in conflict."""


def _plain(text: str) -> str:
    if visible_line(text) != text:
        raise ValueError("it has a character that cannot be shown: write plain text")
    return text


def _count(text: str) -> int:
    match = _FIGURE.fullmatch(text)
    value, unit = (read_number(match[1]), match[2]) if match else (None, "")
    if unit not in _UNITS:
        raise ValueError(
            f"'{shortened(text)}' has an unknown unit '{unit}': use k, M, G or T, or no unit"
        )
    count = whole(value, _UNITS[unit])
    if count is None or count <= 0 or not (unit or (value or 0.0).is_integer()):
        raise ValueError(
            f"'{shortened(visible_line(text))}' is not a count: write it such as 1814073344 or "
            "1.81G"
        )
    return count


def _per_cent(text: str) -> float:
    value = read_number(text.removesuffix("%"))
    if value is None or not 1 < value <= 100:
        raise ValueError(
            f"'{shortened(visible_line(text))}' is not top-1 in per cent: write it such as 76.13; "
            "a share of 0.7613 is 76.13"
        )
    return value


_Count = Annotated[int | None, Short(_count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A line of the file; all columns but the first may be absent. FLOPs are 2 x MACs."""

    model: Annotated[str, Checked(_plain)]
    flops: _Count = None
    macs: _Count = None
    params: _Count = None
    accuracy: Annotated[float | None, Short(_per_cent)] = None
    accuracy_source: Annotated[str, Checked(_plain)] | None = None
    family: Annotated[str | None, Key(words=FAMILIES)] = None
    has_attention: Annotated[str | None, Key(words=("true", "false"))] = None

    def columns(self, where: str) -> Row:
        """The columns of the table that the line fills, with the sources of its figures."""
        found: Row = {}
        if (flops := self.flops or 2 * (self.macs or 0)) > 0:
            found |= {**flops_columns(flops // 2, where), "flops": flops}
        if self.params is not None:
            found["parameters"] = self.params
        if self.accuracy is not None:
            source = self.accuracy_source or where
            found |= {"accuracy_top1": self.accuracy, "accuracy_source": source}
        if self.family is not None:
            found["family"] = self.family
        if self.has_attention is not None:
            found["has_attention"] = self.has_attention == "true"
        return found


def _fitting(line: Facts) -> Facts:
    if None not in (line.macs, line.flops) and line.flops != 2 * (line.macs or 0):
        raise ValueError(
            f"flops is not 2 x macs ({line.flops} and {line.macs}): give one of the two"
        )
    if line.accuracy is None and line.accuracy_source is not None:
        raise ValueError("it has a source but no accuracy: give the accuracy too")
    return line


_LINE: TypeAdapter[Facts] = TypeAdapter(Annotated[Facts, Checked(_fitting)])
FACT_COLUMNS = tuple(one.name for one in fields(Facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A checked file of facts.

    Attributes:
        name: of the file.
        reference: name and sha256, as `source_ref` keeps it.
        lines: model, as the file names it, to the number of its line.
        columns: model to the columns of the table that its line fills.
    """

    name: str
    reference: str
    lines: Mapping[str, int]
    columns: Mapping[str, Row]


def read_facts(path: Path) -> ModelFacts:
    """Reads a file of facts of at most 1 MB. Raises as `parse_facts`."""
    return parse_facts(path.name, read_small_bytes(path, MAX_TYPED_BYTES))


def parse_facts(name: str, content: bytes) -> ModelFacts:
    """Reads a CSV file whose header has `model` and others of `FACT_COLUMNS`.

    An empty field means not known. Counts may have a unit: k, M, G or T. Accuracy is top-1 in per
    cent.

    Raises:
        BadFileError: an unknown column, unit or word, a figure that cannot be, or a model twice;
            the message has the number of the line.
    """
    shown = shortened(visible_line(name))
    names, rows = read_csv(content, shown)
    header = [column.strip() for column in names]
    if not rows:
        raise BadFileError(f"{shown} holds no facts", _EXAMPLE)
    _check_header(shown, header)
    lines: dict[str, int] = {}
    columns: dict[str, Row] = {}
    for number, cells in rows:
        where = f"{shown}, line {number}"
        if len(cells) != len(header):
            raise BadFileError(
                f"{where} has {len(cells)} fields, the header has {len(header)}",
                "write every field, empty where the fact is not known",
            )
        given = zip(header, map(str.strip, cells), strict=True)
        line = checked(_LINE, {column: cell for column, cell in given if cell}, where)
        if line.model in lines:
            raise BadFileError(
                f"{where} names {shortened(line.model)}, as line {lines[line.model]} does",
                "remove one of them",
            )
        lines[line.model], columns[line.model] = number, line.columns(where)
    reference = f"facts {file_reference(shown, content)}"
    return ModelFacts(name=shown, reference=reference, lines=lines, columns=columns)


def _check_header(where: str, header: Sequence[str]) -> None:
    for name in header:
        if name not in FACT_COLUMNS:
            raise BadFileError(
                f"{where}, line 1 has an unknown column '{shortened(visible_line(name))}'",
                f"{did_you_mean(name, FACT_COLUMNS)}known are {', '.join(FACT_COLUMNS)}",
            )
    if len(set(header)) < len(header) or "model" not in header or len(header) < 2:
        raise BadFileError(
            f"{where}, line 1 must name model and other columns, each once", _EXAMPLE
        )


def refuse_unknown_models(facts: ModelFacts, models: Iterable[tuple[str, str]]) -> None:
    """Compares the models of a file with those that are imported, pairs of source and stored name.

    Raises:
        AnalysisError: a line names no imported model, or two lines name the same one.
    """
    stored = sorted(set(models))
    used = {_line_of(facts, *one) for one in stored}
    names = [name for source, model in stored for name in (model, _own_name(source, model))]
    for model, number in facts.lines.items():
        if model not in used:
            raise AnalysisError(
                f"{facts.name}, line {number}: the import has no model '{shortened(model)}'",
                f"{did_you_mean(model, names)}use the stored name, or its part after the "
                "colon; after an import without facts `fleetrank report show latency` lists them",
            )


def fill(
    facts: ModelFacts, source: str, rows: Sequence[Row]
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows with the facts that they lack, and notes for readers of any figure from them.

    A fact that the source or our card states is kept, also if the file states another one.
    """
    filled = []
    without: dict[str, None] = {}
    kept: dict[str, str] = {}
    for row in rows:
        model = str(row["model"])
        name = _line_of(facts, source, model)
        if name is None:
            without[model] = None
            filled.append(row)
            continue
        given = facts.columns[name]
        for text in _conflicts(row, given):
            kept.setdefault(model, text)
        filled.append(_filled(row, given, facts, facts.lines[name]))
    return tuple(filled), tuple(_notes(facts.name, tuple(without), kept))


def _filled(row: Row, given: Row, facts: ModelFacts, number: int) -> Row:
    lacking = [
        group for group in _GROUPS if row.get(group[0]) is None and given.get(group[0]) is not None
    ]
    if not lacking:
        return row
    listed = row.get("derived")
    names = ", ".join(group[0] for group in lacking)
    return row | {
        **{name: given[name] for group in lacking for name in group},
        "derived": [
            *(listed if isinstance(listed, list) else []),
            f"{names}: from {facts.name}, line {number}",
        ],
        "source_ref": f"{row['source_ref']}; {facts.reference}",
    }


def _conflicts(row: Row, given: Row) -> Iterator[str]:
    for name, *_ in _GROUPS:
        stated, other = row.get(name), given.get(name)
        if stated is None or other is None or stated == other:
            continue
        both = isinstance(stated, int | float) and isinstance(other, int | float)
        if both and math.isclose(float(str(stated)), float(str(other)), rel_tol=_SAME):
            continue
        yield f"{name} {stated}, not {other}"


def _notes(name: str, without: Sequence[str], kept: Mapping[str, str]) -> Iterator[str]:
    if without:
        yield (
            f"{name} has no line for {count_of(len(without), 'model')} of the import; the first is "
            f"{without[0]}."
        )
    for model, text in list(kept.items())[:1]:
        yield (
            f"{name} differs from the source or from our card for {count_of(len(kept), 'model')}; "
            f"their facts are kept. The first is {model}: {text}."
        )


def _line_of(facts: ModelFacts, source: str, model: str) -> str | None:
    """The name in the file that means a stored model; `None` without a line."""
    names = [name for name in (model, _own_name(source, model)) if name in facts.lines]
    if len(set(names)) > 1:
        first, second = (facts.lines[name] for name in names)
        raise AnalysisError(
            f"{facts.name}, lines {first} and {second} both name {model}", "remove one of them"
        )
    return names[0] if names else None


def _own_name(source: str, model: str) -> str:
    """A model's name in its source."""
    return model.removeprefix(f"{source}:")
