"""The selection of results for a table: one definition for command line and API."""

from collections.abc import Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.config import JsonDict

from fleetrank.analysis.stored.columns import (
    DEFAULT_ORIGINS,
    FAMILIES,
    ORIGINS,
    PRECISIONS,
    STORED_RUNTIMES,
    TIERS,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.orchestrator.errors import UsageError

_MAX_TEXT = 500
"""Longer than any name or platform key; a longer pattern is a mistake or an attack."""
MAX_SEED = 2**63 - 1
_WORDS = {
    "source_tier": TIERS,
    "target_tier": TIERS,
    "runtime": STORED_RUNTIMES,
    "precision": PRECISIONS,
    "family": FAMILIES,
}
"""Selectors that accept only words of a closed set."""


def _text(description: str, name: str = "") -> str | None:
    """A text field; all rows are selected if it is not given."""
    extra: JsonDict = {"maxLength": _MAX_TEXT}
    if name in _WORDS:
        extra = {"enum": list(_WORDS[name])}
    found: str | None = Field(default=None, description=description, json_schema_extra=extra)
    return found


class TableFormat(StrEnum):
    """Output formats of a table; `analysis.tables.formats` implements them."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"


class Selectors(BaseModel):
    """The selectors of `report show`, of the API and of the server's pages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sweep: str | None = _text("Only this sweep (default: the newest of each model and platform).")
    source: str | None = _text("Source device, or platform pattern with *.")
    target: str | None = _text("The same for the target device.")
    source_tier: str | None = _text("Tier of the source: gpu, cpu or edge.", "source_tier")
    target_tier: str | None = _text("The same for the target device.", "target_tier")
    runtime: str | None = _text(
        "Runtime such as tflite; qnn exists only in imported data.", "runtime"
    )
    precision: str | None = _text("Precision: fp32, fp16, bf16 or int8.", "precision")
    family: str | None = _text("Model family such as transformer.", "family")
    model: str | None = _text("A model, or a pattern with *.")
    settings: tuple[str, ...] = Field(
        default=(),
        alias="set",
        description="NAME=VALUE setting of this table; may be repeated.",
    )
    include_simulated: bool = Field(
        default=False,
        description="Include virtual and simulated devices (output is marked).",
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=MAX_SEED,
        description="Random seed for bootstrap, permutation and null draws.",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _drop_empty(cls, value: object) -> object:
        """Drops empty fields, which a form sends too."""
        if isinstance(value, list | tuple):
            return tuple(part for part in value if part != "")
        return None if value == "" else value

    def selection(self) -> Selection:
        """Converts the selectors for the analysis.

        Raises:
            UsageError: a word is unknown, a text is too long, or a setting has no
                value.
        """
        self._refuse_what_cannot_be()
        return Selection(
            sweep=self.sweep,
            source=self.source,
            target=self.target,
            source_tier=self.source_tier,
            target_tier=self.target_tier,
            runtime=self.runtime,
            precision=self.precision,
            family=self.family,
            model=self.model,
            origins=origins_of(include_simulated=self.include_simulated),
            seed=self.seed,
            settings=_settings(self.settings),
        )

    def _refuse_what_cannot_be(self) -> None:
        """Rejects a misspelt word, which would otherwise select no rows."""
        for name, text in self:
            if isinstance(text, str) and len(text) > _MAX_TEXT:
                raise UsageError(
                    f"the {_spoken(name)} has {len(text)} characters",
                    f"names and patterns have at most {_MAX_TEXT} characters",
                )
            if isinstance(text, str) and text not in (known := _WORDS.get(name, (text,))):
                raise UsageError(f"unknown {_spoken(name)} '{text}'", f"use {', '.join(known)}")


def origins_of(*, include_simulated: bool) -> tuple[str, ...]:
    """Which rows are used in figures."""
    return ORIGINS if include_simulated else DEFAULT_ORIGINS


def describe(name: str) -> str:
    """The description of a selector, for the help of an option."""
    return str(Selectors.model_fields[name].description)


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _settings(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    for text in given:
        if "=" not in text or text.startswith("="):
            raise UsageError(f"the setting '{text}' has no value", "write NAME=VALUE, such as k=5")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in given))
