"""The file of facts about models that a user gives with an import: CSV, checked line by line."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.release import (
    Row,
    file_reference,
    flops_columns,
    read_number,
    whole,
)
from fleetrank.analysis.stored.columns import FAMILIES
from fleetrank.foundation.small_file import MAX_TYPED_BYTES, read_small_bytes
from fleetrank.foundation.visible_text import shortened, visible_line
from fleetrank.foundation.wording import did_you_mean

FACT_COLUMNS = (
    "model", "flops", "macs", "params", "accuracy", "accuracy_source", "family", "has_attention",
)  # fmt: skip
"""Columns of the file; all but the first may be absent. FLOPs are 2 x MACs."""
_UNITS: Mapping[str, float] = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_FIGURE = re.compile(r"([0-9][0-9.,]*(?:e[+-]?[0-9]+)?) ?([A-Za-z]*)")
_EXAMPLE = "write a header, such as model,flops,params,accuracy,family"


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
    """Reads a file of facts.

    Raises:
        BadFileError: the file is unreadable, not regular, or above 1 MB.
        AnalysisError: as `parse_facts`.
    """
    return parse_facts(path.name, read_small_bytes(path, MAX_TYPED_BYTES))


def parse_facts(name: str, content: bytes) -> ModelFacts:
    """Reads a CSV file whose header has `model` and others of `FACT_COLUMNS`.

    An empty field means not known. Counts may have a unit: k, M, G or T. Accuracy is top-1 in per
    cent.

    Raises:
        AnalysisError: an unknown column, unit or word, a figure that cannot be, or a model twice;
            the message has the number of the line.
    """
    shown = shortened(visible_line(name))
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        table = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except (UnicodeDecodeError, csv.Error) as error:
        raise AnalysisError(
            f"{shown} is not a CSV file: {error}", "save it as comma-separated text in UTF-8"
        ) from error
    if len(table) < 2:
        raise AnalysisError(f"{shown} holds no facts", _EXAMPLE)
    (_, header), *rows = table
    _check_header(shown, header)
    lines: dict[str, int] = {}
    columns: dict[str, Row] = {}
    for number, cells in rows:
        where = f"{shown}, line {number}"
        if len(cells) != len(header):
            raise AnalysisError(
                f"{where} has {len(cells)} fields, the header has {len(header)}",
                "write every field, empty where the fact is not known",
            )
        given = {column: cell for column, cell in zip(header, cells, strict=True) if cell}
        model = _checked_model(where, given, lines)
        lines[model], columns[model] = number, _columns(where, given)
    reference = f"facts {file_reference(shown, content)}"
    return ModelFacts(name=shown, reference=reference, lines=lines, columns=columns)


def _check_header(where: str, header: Sequence[str]) -> None:
    for name in header:
        if name not in FACT_COLUMNS:
            raise AnalysisError(
                f"{where}, line 1 has an unknown column '{shortened(visible_line(name))}'",
                f"{did_you_mean(name, FACT_COLUMNS)}known are {', '.join(FACT_COLUMNS)}",
            )
    if len(set(header)) < len(header) or "model" not in header or len(header) < 2:
        raise AnalysisError(
            f"{where}, line 1 must name model and other columns, each once",
            _EXAMPLE,
        )


def _checked_model(where: str, given: Mapping[str, str], lines: Mapping[str, int]) -> str:
    model = given.get("model", "")
    if not model or visible_line(model) != model:
        shown = shortened(visible_line(model))
        raise AnalysisError(f"{where} has no usable model: '{shown}'", "write a model's name")
    if model in lines:
        raise AnalysisError(
            f"{where} names {shortened(model)}, as line {lines[model]} does", "remove one of them"
        )
    return model


def _columns(where: str, given: Mapping[str, str]) -> Row:
    """The columns of the table that a line fills, with the sources of its figures."""
    found: Row = {}
    macs, flops = _count(where, given, "macs"), _count(where, given, "flops")
    if macs is not None and flops is not None and flops != 2 * macs:
        raise AnalysisError(
            f"{where}: flops is not 2 x macs ({flops} and {macs})", "give one of the two"
        )
    if macs is not None or flops is not None:
        found |= flops_columns(macs if flops is None else flops // 2, where)
        found["flops"] = 2 * (macs or 0) if flops is None else flops
    if (params := _count(where, given, "params")) is not None:
        found["parameters"] = params
    if (accuracy := _accuracy(where, given)) is not None:
        found |= {"accuracy_top1": accuracy, "accuracy_source": _accuracy_source(where, given)}
    if (family := given.get("family")) is not None:
        found["family"] = _word(where, "family", family, FAMILIES)
    if (attention := given.get("has_attention")) is not None:
        words = ("true", "false")
        found["has_attention"] = _word(where, "has_attention", attention, words) == "true"
    return found


def _count(where: str, given: Mapping[str, str], name: str) -> int | None:
    if (text := given.get(name)) is None:
        return None
    match = _FIGURE.fullmatch(text)
    value = read_number(match[1]) if match else None
    if match and match[2] not in _UNITS:
        raise AnalysisError(
            f"{where}: {name} = '{shortened(text)}' has an unknown unit '{match[2]}'",
            "use k, M, G or T, or no unit",
        )
    count = whole(value, _UNITS[match[2]]) if match else None
    is_counted = match is not None and (bool(match[2]) or (value or 0.0).is_integer())
    if count is None or count <= 0 or not is_counted:
        raise AnalysisError(
            f"{where}: {name} = '{shortened(visible_line(text))}' is not a count",
            f"write {name} such as 1814073344 or 1.81G",
        )
    return count


def _accuracy(where: str, given: Mapping[str, str]) -> float | None:
    if (text := given.get("accuracy")) is None:
        if "accuracy_source" in given:
            raise AnalysisError(f"{where} has a source but no accuracy", "give the accuracy too")
        return None
    value = read_number(text.removesuffix("%"))
    if value is None or not 1 < value <= 100:
        raise AnalysisError(
            f"{where}: accuracy = '{shortened(visible_line(text))}' is not top-1 in per cent",
            "write it such as 76.13; a share of 0.7613 is 76.13",
        )
    return value


def _accuracy_source(where: str, given: Mapping[str, str]) -> str:
    text = given.get("accuracy_source", where)
    if visible_line(text) != text:
        raise AnalysisError(
            f"{where}: accuracy_source has a character that cannot be shown", "write plain text"
        )
    return text


def _word(where: str, name: str, text: str, words: Sequence[str]) -> str:
    if text not in words:
        raise AnalysisError(
            f"{where}: {name} = '{shortened(visible_line(text))}' is not an allowed word",
            f"{did_you_mean(text, words)}use {', '.join(words)}",
        )
    return text
