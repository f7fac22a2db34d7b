"""Reads any CSV table of measurements with a mapping that its owner writes."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.csv_mapping import FACTS, QUANTITIES, WORDS, Mapped, read_mapping
from fleetrank.analysis.importers.importer import Importer, read_table
from fleetrank.analysis.importers.release import (
    COUNT_RANGE,
    LATENCY_RANGE_NS,
    Equivalences,
    Release,
    Row,
    device_names,
    drop,
    file_reference,
    is_possible,
    is_sentinel,
    load_equivalences,
    named,
    read_number,
    whole,
)
from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.foundation.visible_text import shortened

_PER_SECOND = "samples_per_second"
_STATED = "stated by the mapping"
_NOT_STATED = (
    'The mapping does not state what the latencies are: write statistic = "median", "mean" or '
    '"minimum" under [constants].'
)
_REST, _LINE = "\0rest", "\0line"
"""Keys of the fields beyond the last column and of the line's number; no header has a NUL."""


def parse_csv(name: str, content: bytes, mapping_content: bytes) -> tuple[Release, ...]:
    """Reads one CSV file through a `mapping.toml`; several lines of one cell are its repeats.

    Raises:
        AnalysisError: the mapping is wrong (see `csv_mapping.read_mapping`), the file lacks a
            column that the mapping names, or a figure cannot be.
    """
    mapping = read_mapping(mapping_content)
    try:
        reader = csv.DictReader(
            io.StringIO(content.decode("utf-8-sig")),
            delimiter=mapping.delimiter,
            restkey=_REST,
            restval="",
        )
        header = reader.fieldnames or ()
        lines = [line | {_LINE: str(reader.line_num)} for line in reader]
    except (UnicodeDecodeError, csv.Error, TypeError) as error:
        raise AnalysisError(
            f"{name} is not a CSV file: {error}", "check delimiter in [source]"
        ) from error
    missing = [column for column in mapping.columns.values() if column not in header]
    if missing:
        raise AnalysisError(
            f"{name} has no column {', '.join(missing)}", f"it has {', '.join(header)}"
        )
    table = Equivalences(
        source=mapping.name,
        equal=mapping.models,
        unequal={},
        macs=load_equivalences(mapping.name).macs,
    )
    reference = f"{file_reference(name, content)}; {file_reference('mapping', mapping_content)}"
    rows = tuple(_rows(lines, mapping, table, reference))
    return (
        Release(
            source=mapping.name,
            version=mapping.version,
            licence=mapping.licence,
            rows=rows,
            notes=_notes(lines, mapping),
        ),
    )


def _notes(lines: list[dict[str, str]], mapping: Mapped) -> tuple[str, ...]:
    """How many figures beside latency are codes for 'missing'; a latency drops its row."""
    counts = Counter(
        name for line in lines for name, (why, _) in _figures(line, mapping)[1].items()
        if name != "latency" and why == "sentinel"
    )  # fmt: skip
    notes = tuple(
        f"{n} of {len(lines)} {name} figures are codes for 'missing': unknown."
        for name, n in sorted(counts.items())
    )
    if "statistic" in {*mapping.columns, *mapping.constants} or _is_rate(mapping):
        return notes
    return (*notes, _NOT_STATED)


def _rows(
    lines: list[dict[str, str]], mapping: Mapped, table: Equivalences, reference: str
) -> Iterator[Row]:
    column = mapping.columns.get("device")
    constant = str(mapping.constants.get("device") or "")
    published = (constant if column is None else line[column].strip() for line in lines)
    devices = device_names(mapping.name, published, kept="._")
    for line in lines:
        row, reason = _row(line, mapping, table)
        row["device"] = devices[str(row.get("device") or "")]
        if _REST in line:
            reason = ("more fields than columns", f"line of {row['model']} on {row['device']}")
        row |= {"source_ref": reference}
        yield row | {"status": "ok"} if reason is None else drop(row, *reason)


def _row(
    line: Mapping[str, str], mapping: Mapped, table: Equivalences
) -> tuple[Row, tuple[str, str] | None]:
    """The row, and why it cannot be used; the first reason found."""
    facts, reason = _facts(line, mapping)
    figures, gaps = _figures(line, mapping)
    row = facts | _derived(figures, facts, mapping)
    name = str(facts["model"] or "?")
    row = named(row, name, table)
    if reason is not None:
        return row, reason
    return row, gaps.get("latency")


def _facts(line: Mapping[str, str], mapping: Mapped) -> tuple[Row, tuple[str, str] | None]:
    facts: Row = {
        "source": mapping.name,
        "licence": mapping.licence,
        "sample_kind": mapping.sample_kind,
        "statistic": "mean" if _is_rate(mapping) else None,
        "backend": None,
        "mode": "eager",
        "options": "{}",
        **mapping.constants,
    }
    reason = None
    for name in FACTS:
        if (column := mapping.columns.get(name)) is None:
            continue
        text = line[column].strip()
        value: object = text or None
        if SCHEMA[name].is_integer():
            value = whole(read_number(text))
        if value is not None and (words := WORDS.get(name)) is not None and value not in words:
            reason = reason or (f"unknown {name}", repr(text))
            value = None
        facts[name] = value
    for name in ("model", "device"):
        if not facts.get(name):
            reason = reason or (f"no {name}", "the field is empty")
    facts["device_model"] = facts.get("device_model") or facts.get("device")
    return facts, reason or _bad_placement(facts)


def _is_rate(mapping: Mapped) -> bool:
    """Whether a latency is the inverse of a rate, which is the mean time."""
    kind, unit = mapping.sample_kind, mapping.units.get("latency")
    return kind == "throughput_derived" or unit == _PER_SECOND


def _bad_placement(facts: Row) -> tuple[str, str] | None:
    """The reason if more nodes ran on the backend than the graph has, or a count is negative."""
    on, of = facts.get("backend_nodes"), facts.get("graph_nodes")
    counts = [count for count in (0, on, of) if isinstance(count, int)]
    if counts == sorted(counts):
        return None
    return "impossible placement", f"{on} of {of} nodes on the backend"


def _figures(
    line: Mapping[str, str], mapping: Mapped
) -> tuple[dict[str, float], dict[str, tuple[str, str]]]:
    """Quantities in our units, and why the others are missing."""
    figures: dict[str, float] = {}
    gaps: dict[str, tuple[str, str]] = {}
    for name, factor in mapping.factors.items():
        text = line[mapping.columns[name]]
        value = read_number(text)
        if value is None:
            gaps[name] = (f"no {name}", repr(text))
        elif value in mapping.missing.get(name, ()) or is_sentinel(value) or value < 0:
            gaps[name] = ("sentinel", f"{name} {text.strip()}")
        else:
            is_rate = mapping.units.get(name) == _PER_SECOND
            figures[name] = factor / value if is_rate else value * factor
            _check_range(name, figures[name], line, mapping)
    return figures, gaps


def _check_range(name: str, figure: float, line: Mapping[str, str], mapping: Mapped) -> None:
    """Raises if a figure in our unit cannot be: a wrong unit makes every line of a file wrong."""
    limits = LATENCY_RANGE_NS if name == "latency" else COUNT_RANGE
    if is_possible(figure, limits):
        return
    unit, theirs = next(iter(QUANTITIES[name][1])), mapping.columns[name]
    given = f"{shortened(line[theirs].strip())} {mapping.units.get(name, '')}".strip()
    raise AnalysisError(
        f"{mapping.name}, line {line[_LINE]}: {theirs} is {given}, and {name} must be from "
        f"{limits[0]:g} to {limits[1]:g} {unit}".strip(),
        "correct the line, or the unit in [units]; a code for 'missing' belongs into [missing]",
    )


def _derived(figures: Mapping[str, float], facts: Row, mapping: Mapped) -> Row:
    row: Row = {}
    for name, value in figures.items():
        column = QUANTITIES[name][0]
        row[column] = whole(value) if SCHEMA[column].is_integer() else value
    macs, flops = row.get("macs"), row.get("flops")
    if isinstance(macs, int) and flops is None:
        row["flops"] = 2 * macs
    elif isinstance(flops, int) and macs is None:
        row["macs"] = flops // 2
    if row.get("flops") is not None:
        row |= {"flops_method": "published", "flops_source": f"{mapping.name}, {_STATED}"}
    if "accuracy_top1" in row and not facts.get("accuracy_source"):
        row["accuracy_source"] = f"{mapping.name}, {_STATED}"
    if "peak_memory_bytes" not in row:
        row["memory_metric"] = None
    return row | {"derived": _converted(figures, mapping)}


def _converted(figures: Mapping[str, float], mapping: Mapped) -> list[str]:
    texts = [
        f"{QUANTITIES[name][0]}: column {mapping.columns[name]} in {unit}"
        for name in figures
        if (unit := mapping.units.get(name))
    ]
    if {"macs", "flops"} & set(figures) and not {"macs", "flops"} <= set(figures):
        texts.append("macs and flops: one from the other, flops = 2 x macs")
    return texts


def _read_file(path: Path, mapping: bytes) -> tuple[Release, ...]:
    return parse_csv(path.name, read_table(path), mapping)


IMPORTER = Importer(read=_read_file, needs_mapping=True)
