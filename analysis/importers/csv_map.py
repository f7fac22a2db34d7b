"""Reads any CSV table of measurements, or lists in JSON files, with a mapping of its columns."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import TypeAdapter

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.importer import Files, Importer, read_table, read_tables
from fleetrank.analysis.importers.readings import number_in, unlike_repeats
from fleetrank.analysis.importers.release import (
    COUNT_RANGE,
    LATENCY_RANGE_NS,
    LONGEST_NAME,
    LONGEST_TEXT,
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
    whole,
)
from fleetrank.analysis.stored.columns import COLUMNS, SCHEMA
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import parse_json, parse_toml
from fleetrank.foundation.small_file import decoded
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Checked, Key, checked, read_csv
from fleetrank.foundation.visible_text import shortened, visible_line
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.foundation.workload import Workload

QUANTITIES: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "latency": (
        "latency_p50_ns",
        {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "samples_per_second": 1e9},
    ),
    "memory": (
        "peak_memory_bytes",
        {"B": 1, "kB": 1e3, "KiB": 2**10, "MB": 1e6, "MiB": 2**20, "GB": 1e9, "GiB": 2**30},
    ),
    "energy": ("energy_mj", {"mJ": 1, "J": 1e3, "uJ": 1e-3}),
    "macs": ("macs", {"": 1, "M": 1e6, "G": 1e9}),
    "flops": ("flops", {"": 1, "M": 1e6, "G": 1e9}),
    "parameters": ("parameters", {"": 1, "k": 1e3, "M": 1e6}),
    "accuracy": ("accuracy_top1", {"percent": 1, "share": 100}),
}
"""Name in a mapping to our column and the factors of its units."""
FACTS = (
    "model", "device", "device_model", "tier", "runtime", "backend", "mode", "precision", "batch",
    "threads", "input_size", "family", "runtime_version", "os", "memory_metric", "accuracy_source",
    "statistic", "workload", "backend_nodes", "graph_nodes", "error_kind", "error_message",
)  # fmt: skip
"""Columns of the table that a mapping can fill without conversion."""
_NEEDED = ("model", "device", "tier", "runtime", "precision", "batch", "latency")
_WORDS = {column.name: column.values for column in COLUMNS if column.values is not None}
_PER_SECOND = "samples_per_second"
_MOST_FACTS = 50
"""Facts of whole files that are compared where their records are repeats of one cell."""
_LONGEST_TEXT = 300
"""Letters of a published error: a line of a log has fewer, a whole log has thousands."""
_STATED = "stated by the mapping"
_NOT_STATED = (
    'The mapping does not state what the latencies are: write statistic = "median", "mean" or '
    '"minimum" under [constants].'
)
_REST, _LINE, _FILE_OF, OPTIONS = "\0rest", "\0line", "\0file", "\0options"
"""Keys of the fields beyond the last column, of the line's number and of its file, and of options;
no header has a NUL."""


def _valid_constants(constants: Mapping[str, int | str]) -> Mapping[str, int | str]:
    for name, value in constants.items():
        is_whole = SCHEMA[name].is_integer()
        if isinstance(value, int) is not is_whole:
            what = "a whole number" if is_whole else "a text"
            raise ValueError(f"{name} = {shortened(repr(value))} is not {what}")
        if (words := _WORDS.get(name)) is not None and value not in words:
            shown = shortened(str(value))
            raise ValueError(f"{name} = '{shown}' is not an allowed word: use {', '.join(words)}")
        if name == "workload":
            Workload.parse(str(value))
    return constants


_FileName = Annotated[str, Key("becomes part of a file's name", pattern=r"^[\w.-]{1,100}$")]
_Quantity = Annotated[str, Key(words=tuple(QUANTITIES))]
_Number = Annotated[float, Key()]


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSource:
    """The table `[source]` of a mapping."""

    __pydantic_config__ = NO_OTHER_KEYS

    name: _FileName
    version: _FileName = "1"
    licence: Annotated[str, Key(pattern=".")]
    sample_kind: Annotated[str, Key(words=_WORDS["sample_kind"])]
    delimiter: Annotated[str, Key("between two fields", pattern="^.$")] = ","
    decimal: Annotated[str, Key("the decimal sign", words=(".", ","))] | None = None
    records: Annotated[str, Key("of the list in each JSON file", pattern=".")] = "results"
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The mapping from a user's CSV columns to our columns.

    Attributes:
        columns: our name to theirs.
        constants: facts the file does not have, the same for every row.
        units: quantity to its unit, as written.
        missing: quantity to the figures that are codes for 'missing'.
        models: their name to our card, declared equal by the author of the mapping.
        failures: their word in the column of `error_kind` to ours; such a line is a failed attempt.
        wrong_output: a column of theirs to the value which says that the model computed wrong.
        where: columns of theirs to the value that a line must have; other lines are left out.
    """

    __pydantic_config__ = NO_OTHER_KEYS

    source: MappingSource
    columns: Mapping[Annotated[str, Key(words=(*FACTS, *QUANTITIES))], str]
    constants: Annotated[
        Mapping[Annotated[str, Key(words=FACTS)], Annotated[int, Key()] | str],
        Checked(_valid_constants),
    ] = field(default_factory=dict)
    units: Mapping[_Quantity, str] = field(default_factory=dict)
    missing: Mapping[_Quantity, tuple[_Number, ...]] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, Annotated[str, Key(words=_WORDS["error_kind"])]] = field(
        default_factory=dict
    )
    wrong_output: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> tuple[str, ...]:
        """Their columns that tell one cell from another."""
        return tuple(own for name, own in self.columns.items() if name not in QUANTITIES)

    @property
    def used(self) -> tuple[str, ...]:
        """Their columns that this mapping reads."""
        return (*self.columns.values(), *self.wrong_output, *self.where)

    def number(self, text: str, line: Mapping[str, str], column: str) -> float | None:
        """A figure in a column of theirs; raises `AnalysisError` if it has two readings."""
        where = f"{self.source.name}, line {line[_LINE]}: {column}"
        return number_in(text, self.source.decimal, where)

    @property
    def factors(self) -> Mapping[str, float]:
        """Quantity to what one of its unit is in ours."""
        given = (name for name in self.columns if name in QUANTITIES)
        return {name: QUANTITIES[name][1][self.units.get(name, "")] for name in given}

    @property
    def is_rate(self) -> bool:
        """Whether a latency is the inverse of a rate, which is the mean time."""
        is_derived = self.source.sample_kind == "throughput_derived"
        return is_derived or self.units.get("latency") == _PER_SECOND


def _complete(mapping: Mapped) -> Mapped:
    for name in (name for name in mapping.columns if name in QUANTITIES):
        unit, known = mapping.units.get(name, ""), QUANTITIES[name][1]
        if unit not in known:
            raise ValueError(
                f"[units] {name} = '{shortened(unit)}' is not a unit of {name}: use "
                f"{', '.join(repr(word) for word in known)}"
            )
    given = {*mapping.columns, *mapping.constants}
    lacking = [name for name in _NEEDED if name not in given]
    if "memory" in given and "memory_metric" not in given:
        lacking.append("memory_metric")
    if lacking:
        raise ValueError(
            f"it lacks {', '.join(lacking)}: give a column under [columns], or one value for all "
            "rows under [constants]"
        )
    return mapping


_FILE: TypeAdapter[Mapped] = TypeAdapter(Annotated[Mapped, Checked(_complete)])


def read_mapping(content: bytes) -> Mapped:
    """Reads a `mapping.toml`.

    Raises:
        BadFileError: it is not TOML, has an unknown key or word, or lacks something.
    """
    where = "the mapping"
    return checked(_FILE, parse_toml(decoded(content, where), where), where)


def parse_csv(name: str, content: bytes, mapping_content: bytes) -> tuple[Release, ...]:
    """Reads one CSV file through a `mapping.toml`; several lines of one cell are its repeats.

    Raises:
        BadFileError: the mapping is wrong, or the file is not CSV.
        AnalysisError: the file lacks a column that the mapping names, or a figure cannot be.
    """
    mapping = read_mapping(mapping_content)
    header, table = read_csv(content, name, mapping.source.delimiter)
    reference = file_reference(name, content)
    lines = [
        dict(zip(header, cells, strict=False))
        | {_LINE: str(number), _FILE_OF: reference}
        | ({_REST: ""} if len(cells) > len(header) else {})
        for number, cells in table
    ]
    return (_release(name, lines, header, mapping, mapping_content),)


def parse_records(
    files: Mapping[str, bytes],
    mapping_content: bytes,
    complete: Callable[[dict[str, str]], dict[str, str]] = dict,
) -> Release:
    """Reads lists of records in JSON files, name to content; a record is a line.

    A column of an inner object is named with dots, such as `env.os`, and so is a list inside one,
    such as `results.runs`; lists have no column. The facts that stand beside the list are those of
    each record in it. A file with one object and no list holds one record.

    Raises:
        BadFileError: the mapping is wrong, a file is not JSON, or has no such list.
        AnalysisError: no record, none has a column that the mapping names, or a figure cannot be.
    """
    mapping = read_mapping(mapping_content)
    found = [
        (file_reference(name, content), *_records(name, content, mapping.source.records))
        for name, content in files.items()
    ]
    texts = Counter(name for name, _ in {one for _, facts, _ in found for one in facts.items()})
    differing = sorted(name for name, n_texts in texts.items() if n_texts > 1)[:_MOST_FACTS]
    lines = [
        complete(shared | {_FILE_OF: reference, _LINE: str(number)} | record)
        for reference, facts, records in found
        for shared in [{one: facts[one] for one in (*mapping.used, *differing) if one in facts}]
        for number, record in enumerate(records, start=1)
    ]
    if not lines:
        raise AnalysisError("no JSON file has records", "name the folder that holds these files")
    header = {*texts, *(column for line in lines for column in line if "\0" not in column)}
    return _release("the list of records", lines, sorted(header), mapping, mapping_content)


def _records(name: str, content: bytes, path: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The facts beside a list, which may lie in inner objects, and its records.

    An object without lists is one record.
    """
    text = decoded(content, name)
    if name.endswith(".jsonl"):
        text = f"[{','.join(filter(str.strip, text.split(chr(10))))}]"
    found = parse_json(text, name)
    facts: dict[str, str] = {}
    for at in path.split("."):
        if isinstance(found, dict) and at in found:
            facts |= _flat({key: value for key, value in found.items() if key != at})
            found = found[at]
    if isinstance(found, dict) and found and not any(isinstance(x, list) for x in found.values()):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise BadFileError(f"{name} has no list of records '{path}'", "name it under [source]")
    return facts, [dict(_flat(record)) for record in found]


def _flat(record: Mapping[str, object], start: str = "") -> Iterator[tuple[str, str]]:
    """Column and text of each value; nesting is limited where the file is read."""
    for key, value in record.items():
        column = f"{start}{key[:LONGEST_NAME]}".replace("\0", "")
        if isinstance(value, dict):
            yield from _flat(value, f"{column}.")
        elif isinstance(value, bool):
            yield column, str(value).lower()
        elif not isinstance(value, list):
            yield column, "" if value is None else str(value)


def _release(
    where: str,
    lines: Iterable[dict[str, str]],
    header: list[str],
    mapping: Mapped,
    mapping_content: bytes,
) -> Release:
    source = mapping.source
    if missing := [column for column in mapping.used if column not in header]:
        raise AnalysisError(
            f"{where} has no column {', '.join(missing)}",
            f"it has {shortened(', '.join(header), LONGEST_TEXT)}",
        )
    if twice := [column for column in mapping.used if header.count(column) > 1]:
        raise AnalysisError(
            f"{where} has several columns named '{twice[0]}'", "rename them: one figure each"
        )
    equal = replace(load_equivalences(source.name), equal=mapping.models, unequal={})
    chosen = [
        line
        for line in lines
        if all(line.get(name, "").strip() == value for name, value in mapping.where.items())
    ]
    if not chosen:
        raise AnalysisError(f"{where} has no line that [where] chooses", "correct its values")
    at = mapping.columns["latency"]
    pooled = (
        (
            [line.get(one, "") for one in (*mapping.settings, OPTIONS)],
            mapping.number(line.get(at, ""), line, at),
            line,
        )
        for line in chosen
    )
    notes = tuple(unlike_repeats(pooled, (*mapping.used, *source.ignored), where))
    reference = file_reference("mapping", mapping_content)
    return Release(
        source=source.name,
        version=source.version,
        licence=source.licence,
        rows=tuple(_rows(chosen, mapping, equal, reference)),
        notes=(*notes, *_notes(chosen, mapping)),
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
    if "statistic" in {*mapping.columns, *mapping.constants} or mapping.is_rate:
        return notes
    return (*notes, _NOT_STATED)


def _rows(
    lines: list[dict[str, str]], mapping: Mapped, table: Equivalences, reference: str
) -> Iterator[Row]:
    column = mapping.columns.get("device")
    constant = str(mapping.constants.get("device") or "")
    published = (constant if column is None else line.get(column, "").strip() for line in lines)
    devices = device_names(mapping.source.name, published, kept="._")
    for line in lines:
        row, reason = _row(line, mapping, table)
        row["device"] = devices[str(row.get("device") or "")]
        if _REST in line:
            reason = ("more fields than columns", f"line of {row['model']} on {row['device']}")
        row |= {"source_ref": f"{line[_FILE_OF]}; {reference}"}
        kind = row.pop("error_kind", None)
        said = str(row.pop("error_message", None) or "no text is stated")
        if reason is None and kind is not None:
            reason = (str(kind).replace("_", " "), shortened(visible_line(said), _LONGEST_TEXT))
        failure = {} if kind is None else {"error_kind": kind}
        yield row | {"status": "ok"} if reason is None else drop(row, *reason) | failure


def _row(
    line: Mapping[str, str], mapping: Mapped, table: Equivalences
) -> tuple[Row, tuple[str, str] | None]:
    """The row, and why it cannot be used; the first reason found."""
    facts, reason = _facts(line, mapping)
    figures, gaps = _figures(line, mapping)
    if mapping.units.get("latency") == _PER_SECOND and "latency" in figures:
        # One inference takes a whole batch.
        figures["latency"] *= int(str(facts.get("batch") or 1))
    row = facts | _derived(figures, facts, mapping)
    name = str(facts["model"] or "?")
    row = named(row, name, table)
    if reason is not None or row.get("error_kind") is not None:
        return row, reason
    return row, gaps.get("latency")


def _facts(line: Mapping[str, str], mapping: Mapped) -> tuple[Row, tuple[str, str] | None]:
    facts: Row = {
        "source": mapping.source.name,
        "licence": mapping.source.licence,
        "sample_kind": mapping.source.sample_kind,
        "statistic": "mean" if mapping.is_rate else None,
        "backend": None,
        "mode": "eager",
        "options": line.get(OPTIONS, "{}"),
        **mapping.constants,
    }
    reason = None
    for name in FACTS:
        if (column := mapping.columns.get(name)) is None:
            continue
        text = line.get(column, "").strip()
        value: object = text or None
        if name == "error_kind" and text:
            value = mapping.failures.get(text, ErrorKind.BAD_OUTPUT.value)
        if SCHEMA[name].is_integer():
            value = whole(mapping.number(text, line, column))
        if value is not None and (words := _WORDS.get(name)) is not None and value not in words:
            reason = reason or (f"unknown {name}", repr(text))
            value = None
        facts[name] = value
    sizes, unknown = _of_workload(facts)
    facts, reason = facts | sizes, reason or unknown
    for name in ("model", "device"):
        if not facts.get(name):
            reason = reason or (f"no {name}", "the field is empty")
    facts["device_model"] = facts.get("device_model") or facts.get("device")
    for column, value in mapping.wrong_output.items():
        if facts.get("error_kind") is None and line.get(column, "").strip() == value:
            facts["error_kind"] = ErrorKind.VERIFICATION_FAILED.value
            facts["error_message"] = f"{column} is {value}"
    return facts, reason or _bad_placement(facts)


def _of_workload(facts: Row) -> tuple[Row, tuple[str, str] | None]:
    """What the workload of a line says about its inferences; the reason if it is none."""
    if (text := facts.get("workload")) is None:
        return {}, None
    try:
        workload = Workload.parse(str(text))
    except ValueError:
        return {"workload": None}, ("unknown workload", repr(text))
    return {
        "prompt_tokens": workload.prompt_tokens,
        "context_tokens": workload.context_tokens,
        "generated_tokens": workload.generated,
        "tokens_per_inference": workload.tokens_per_sample(int(str(facts.get("batch") or 1))),
    }, None


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
        text = line.get(mapping.columns[name], "")
        value = mapping.number(text, line, mapping.columns[name])
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
        f"{mapping.source.name}, line {line[_LINE]}: {theirs} is {given}, and {name} must be from "
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
        row |= {"flops_method": "published", "flops_source": f"{mapping.source.name}, {_STATED}"}
    if "accuracy_top1" in row and not facts.get("accuracy_source"):
        row["accuracy_source"] = f"{mapping.source.name}, {_STATED}"
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


def json_files(path: Path) -> Files:
    """A file with records, or all that a folder has."""
    if path.is_dir():
        return read_tables(path, "**/*.json", "**/*.jsonl")
    return {path.name: read_table(path)}


def read_mapped(path: Path, mapping: bytes) -> tuple[Release, ...]:
    """A file or folder of the user, through a mapping; raises the errors of both kinds of files."""
    if path.is_dir() or path.suffix in {".json", ".jsonl"}:
        return (parse_records(json_files(path), mapping),)
    return parse_csv(path.name, read_table(path), mapping)


IMPORTER = Importer(read=read_mapped, needs_mapping=True)
_FOLDER = Path(__file__).parent


def _read_edge_compat(path: Path, _mapping: bytes) -> tuple[Release, ...]:
    """The runs on devices, and those in browsers, of a source distribution of edge-compat."""
    parts = {"edge_compat.toml": "data/device_runs", "edge_compat_web.toml": "data/sweep"}
    return tuple(
        parse_records(read_tables(path, f"{folder}/**/*.json"), read_table(_FOLDER / name))
        for name, folder in parts.items()
    )


EDGE_COMPAT = Importer(read=_read_edge_compat)
DEMO = Importer(
    read=lambda _path, _mapping: parse_csv(
        "demo.csv", read_table(_FOLDER / "demo.csv"), read_table(_FOLDER / "demo.toml")
    ),
    needs_path=False,
)
"""A part of AI Hub's results, so that a question can be asked before anything is measured."""
