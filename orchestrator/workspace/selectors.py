"""The selection of results for a table: one definition for command line and API.

A field of `Selectors` makes the option and the query parameter. A field with the name of a column
needs nothing else: it selects the rows that have its value there. Any other meaning is a field of
`analysis.stored.selection.Selection`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict

from fleetrank.analysis.stored.columns import (
    DEFAULT_ORIGINS,
    FAMILIES,
    ORIGINS,
    PRECISIONS,
    STORED_RUNTIMES,
    TIERS,
)
from fleetrank.analysis.stored.name_patterns import ANY_PRECISION
from fleetrank.analysis.stored.part_list import TAG_WORD
from fleetrank.analysis.stored.selection import Selection
from fleetrank.foundation.formats import OUTSIDE_RUNTIMES
from fleetrank.foundation.visible_text import shortened
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.workspace import stored_name

MAX_TEXT = 500
"""Longer than any name or platform key; a longer pattern is a mistake or an attack."""
MAX_NAMES = 10_000
"""Of one selector. The largest published table has 1,700 models; more is a mistake or an attack."""
_MAX_MEMORY_MIB = 2**40
"""An exbibyte."""
_MAX_SEED = 2**63 - 1
_REPEATED = ("sweep", "model")
"""The selectors of text that may be given several times."""
PAGE_SELECTORS = ("sweep", "precision", "workload", "include_simulated", "seed")
"""The selectors of outputs about all models and platforms: the report page, the exported tables."""


def _text(description: str, words: Sequence[str] = ()) -> str | None:
    """A text field, of a closed set of words if there are any; `None` selects all rows."""
    extra: JsonDict = {"enum": list(words)} if words else {"maxLength": MAX_TEXT}
    found: str | None = Field(default=None, description=description, json_schema_extra=extra)
    return found


def _texts(description: str) -> tuple[str, ...]:
    """A text field that may be given several times; empty selects all rows."""
    found: tuple[str, ...] = Field(default=(), description=f"{description} May be repeated.")
    return found


class Selectors(BaseModel):
    """The selectors of `report show` and of the API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sweep: tuple[str, ...] = _texts(
        "Only this sweep (default: all). The newest of each model and platform counts."
    )
    source: str | None = _text("Source device, or platform pattern with *.")
    target: str | None = _text("The same for the target device.")
    source_tier: str | None = _text("Tier of the source: gpu, cpu or edge.", TIERS)
    target_tier: str | None = _text("The same for the target device.", TIERS)
    runtime: str | None = _text("Runtime such as tflite; qnn exists only in imported data.")
    precision: str | None = _text(
        "Precision such as int8; any: every precision of a model as a separate model.",
        (*PRECISIONS, ANY_PRECISION),
    )
    family: str | None = _text("Model family such as transformer.", FAMILIES)
    model: tuple[str, ...] = _texts("A model, or a pattern with *.")
    workload: str | None = _text(
        "What one inference does, such as decode@512 (default: image, or the only one measured)."
    )
    max_memory_mib: int | None = Field(
        default=None,
        ge=1,
        le=_MAX_MEMORY_MIB,
        description="Only models whose peak memory on the platform is at most this.",
        json_schema_extra={"type": "integer", "minimum": 1, "maximum": _MAX_MEMORY_MIB},
    )
    settings: tuple[str, ...] = Field(
        default=(),
        alias="set",
        description="NAME=VALUE setting of this table. May be repeated.",
    )
    include_simulated: bool = Field(
        default=False,
        description="Include virtual and simulated devices (output is marked).",
    )
    allow_unlike_batch: bool = Field(
        default=False,
        description="Also compare tiers at different batches (output is marked).",
    )
    allow_unlike_border: bool = Field(
        default=False,
        description="Also compare files that take integers with files that take floats.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=_MAX_SEED,
        description="Random seed for bootstrap, permutation and null draws.",
    )

    @field_validator("sweep", "model", mode="before")
    @classmethod
    def _one_is_several(cls, given: object) -> object:
        return (given,) if isinstance(given, str) else given

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        """Drops empty parameters."""
        kept = {
            name: [part for part in value if part != ""]
            if isinstance(value, list | tuple)
            else value
            for name, value in given.items()
        }
        return {name: value for name, value in kept.items() if value != ""}

    def selection(self, results: Path | None = None) -> Selection:
        """Converts the selectors for the analysis.

        Args:
            results: the results folder, in which `tag:NAME` means the sweeps with this tag; without
                it only ids name sweeps.

        Raises:
            UsageError: a word is unknown, a text is too long, or a setting has no
                value.
            NoDataError: no sweep has the tag.
        """
        self._refuse_what_cannot_be()
        _refuse_unknown_runtime(self.runtime, results)
        given = self.model_dump(exclude={"include_simulated", "settings"})
        if results is not None and any(name.startswith(TAG_WORD) for name in self.sweep):
            from fleetrank.analysis.stored.sweep_tags import tagged_sweeps

            given["sweep"] = tagged_sweeps(results, self.sweep)
        given |= {name: given[name] or None for name in _REPEATED}
        given |= {name: given[name] and stored_name(given[name]) for name in ("source", "target")}
        own = {field.name for field in fields(Selection)}
        return Selection(
            **{name: value for name, value in given.items() if name in own},
            where=tuple(
                (name, value)
                for name, value in given.items()
                if name not in own and value is not None
            ),
            origins=origins_of(include_simulated=self.include_simulated),
            settings=_settings(self.settings),
        )

    def _refuse_what_cannot_be(self) -> None:
        """Rejects a misspelt word, which would otherwise select no rows."""
        known = {field.name: field.words for field in selector_fields()}
        for name, given in self:
            texts = given if name in _REPEATED else (given,)
            if len(texts) > MAX_NAMES:
                raise UsageError(
                    f"{len(texts):,} {_spoken(name)}s are named", f"name at most {MAX_NAMES:,}"
                )
            for text in texts:
                if isinstance(text, str):
                    _check_text(name, text, known.get(name, ()))


def _refuse_unknown_runtime(runtime: str | None, results: Path | None) -> None:
    """Rejects a runtime of no row; one of another package need not be installed here."""
    if runtime is None or runtime in STORED_RUNTIMES:
        return
    known = (*STORED_RUNTIMES, *OUTSIDE_RUNTIMES.names())
    if results is not None and runtime not in known:
        import polars as pl

        from fleetrank.analysis.stored.load import load_measurements

        column = pl.col("runtime").drop_nulls().unique().sort()
        known += tuple(load_measurements(results).select(column).collect()["runtime"])
    if runtime not in known:
        raise UsageError(
            f"unknown runtime '{shortened(runtime)}'", f"use {', '.join(dict.fromkeys(known))}"
        )


def _check_text(name: str, text: str, words: Sequence[str]) -> None:
    if len(text) > MAX_TEXT:
        raise UsageError(
            f"the {_spoken(name)} has {len(text)} characters",
            f"names and patterns have at most {MAX_TEXT} characters",
        )
    if words and text not in words:
        raise UsageError(f"unknown {_spoken(name)} '{text}'", f"use {', '.join(words)}")


def origins_of(*, include_simulated: bool) -> tuple[str, ...]:
    """Which rows are used in figures."""
    return ORIGINS if include_simulated else DEFAULT_ORIGINS


class SelectorKind(StrEnum):
    """How a selector is given; the words are those of JSON schema."""

    TEXT = "text"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    ARRAY = "array"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorField:
    """One selector, as an option shows it.

    Attributes:
        name: of the API's query parameter.
        words: the only ones that it takes; empty for free text.
        default: `None` for text, which then selects all rows.
        minimum, maximum: limits of an integer.
    """

    name: str
    kind: SelectorKind
    description: str
    words: tuple[str, ...]
    default: object
    minimum: int | None
    maximum: int | None


@cache
def selector_fields() -> tuple[SelectorField, ...]:
    """All selectors, in the order of help and API."""
    return tuple(
        SelectorField(
            name=name,
            kind=SelectorKind(field.get("type", SelectorKind.TEXT)),
            description=field["description"],
            words=tuple(field.get("enum", ())),
            default=field["default"],
            minimum=field.get("minimum"),
            maximum=field.get("maximum"),
        )
        for name, field in Selectors.model_json_schema()["properties"].items()
    )


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _settings(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    for text in given:
        if "=" not in text or text.startswith("="):
            raise UsageError(f"the setting '{text}' has no value", "write NAME=VALUE, such as k=5")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in given))
