"""The mapping from a user's CSV columns to our columns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.columns import COLUMNS, SCHEMA
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import parse_toml
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import nearest

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
    "statistic", "backend_nodes", "graph_nodes",
)  # fmt: skip
"""Columns of the table that a mapping can fill without conversion."""
NEEDED = ("model", "device", "tier", "runtime", "precision", "batch", "latency")
WORDS = {column.name: column.values for column in COLUMNS if column.values is not None}
_SECTIONS = {
    "source": ("name", "version", "licence", "sample_kind", "delimiter"),
    "columns": (*FACTS, *QUANTITIES),
    "constants": FACTS,
    "units": tuple(QUANTITIES),
    "missing": tuple(QUANTITIES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """A checked mapping.

    Attributes:
        columns: our name to theirs.
        constants: facts the file does not have, the same for every row.
        factors: quantity to what one of its unit is in ours.
        units: quantity to its unit, as written.
        missing: quantity to the figures that are codes for 'missing'.
        models: their name to our card, declared equal by the author of the mapping.
    """

    name: str
    version: str
    licence: str
    sample_kind: str
    delimiter: str
    columns: Mapping[str, str]
    constants: Mapping[str, object]
    factors: Mapping[str, float]
    units: Mapping[str, str]
    missing: Mapping[str, tuple[float, ...]]
    models: Mapping[str, str]


def read_mapping(content: bytes) -> Mapped:
    """Reads a `mapping.toml`.

    Raises:
        AnalysisError: it is not TOML, has an unknown key or word, or lacks something; the remedy
            names the nearest valid key.
    """
    try:
        given = parse_toml(content.decode("utf-8-sig"), "the mapping")
    except UnicodeDecodeError as error:
        raise AnalysisError(f"the mapping is not text: {error}", "save it in UTF-8") from error
    except BadFileError as error:
        raise AnalysisError(error.message, error.remedy) from error
    _check_keys(given, (*_SECTIONS, "models"), "the mapping")
    tables = {name: _table(given, name) for name in (*_SECTIONS, "models")}
    for name, known in _SECTIONS.items():
        _check_keys(tables[name], known, f"[{name}]")
    source = {key: str(value) for key, value in tables["source"].items()}
    for key in ("name", "licence", "sample_kind"):
        if not source.get(key):
            raise AnalysisError(f"[source] lacks {key}", f'write {key} = "..." under [source]')
    _check_word("sample_kind", source["sample_kind"])
    for fact, value in tables["constants"].items():
        _check_constant(fact, value)
    mapping = Mapped(
        name=source["name"],
        version=source.get("version", "1"),
        licence=source["licence"],
        sample_kind=source["sample_kind"],
        delimiter=source.get("delimiter", ","),
        columns={key: str(value) for key, value in tables["columns"].items()},
        constants=tables["constants"],
        factors=_factors(tables["columns"], tables["units"]),
        units={key: str(value) for key, value in tables["units"].items()},
        missing={key: _numbers(key, value) for key, value in tables["missing"].items()},
        models={key: str(value) for key, value in tables["models"].items()},
    )
    _check_complete(mapping)
    return mapping


def _table(given: Mapping[str, object], name: str) -> dict[str, object]:
    table = given.get(name, {})
    if not isinstance(table, dict):
        raise AnalysisError(f"{name} is not a table", f"write [{name}]")
    return table


def _check_keys(given: Iterable[str], known: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in known:
            shown = shortened(key)
            near = nearest(key, known)
            hint = f"did you mean '{near}'? " if near else ""
            raise AnalysisError(
                f"{where} has an unknown key '{shown}'", f"{hint}known are {', '.join(known)}"
            )


def _check_word(name: str, value: object) -> None:
    if (words := WORDS.get(name)) is not None and value not in words:
        shown = shortened(str(value))
        raise AnalysisError(f"{name} = '{shown}' is not an allowed word", f"use {', '.join(words)}")


def _check_constant(name: str, value: object) -> None:
    kind = int if SCHEMA[name].is_integer() else str
    if type(value) is not kind:
        raise AnalysisError(
            f"[constants] {name} = {shortened(repr(value))} must be of type {kind.__name__}",
            f"write {name} = 1" if kind is int else f'write {name} = "..."',
        )
    _check_word(name, value)


def _factors(columns: Iterable[str], units: Mapping[str, object]) -> dict[str, float]:
    factors = {}
    for quantity in (name for name in columns if name in QUANTITIES):
        known = QUANTITIES[quantity][1]
        unit = str(units.get(quantity, ""))
        if unit not in known:
            raise AnalysisError(
                f"[units] {quantity} = '{shortened(unit)}' is not a unit of {quantity}",
                f"use {', '.join(repr(word) for word in known)}",
            )
        factors[quantity] = known[unit]
    return factors


def _numbers(name: str, value: object) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    numbers = [number for number in values if isinstance(number, int | float)]
    if len(numbers) < len(values):
        raise AnalysisError(
            f"[missing] {name} must be a list of numbers", f"write {name} = [-1, 0]"
        )
    return tuple(map(float, numbers))


def _check_complete(mapping: Mapped) -> None:
    given = {*mapping.columns, *mapping.constants}
    lacking = [name for name in NEEDED if name not in given]
    if "memory" in given and "memory_metric" not in given:
        lacking.append("memory_metric")
    if lacking:
        raise AnalysisError(
            f"the mapping lacks {', '.join(lacking)}",
            "give a column under [columns], or one value for all rows under [constants]",
        )
    if not all(char.isalnum() or char in "._-" for char in mapping.name + mapping.version):
        raise AnalysisError(
            "[source] name and version become part of a file's name",
            "use letters, digits, '.', '-' and '_' only",
        )
