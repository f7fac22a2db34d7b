"""What to look at, as a person or a program says it: one definition for command line and API."""

from collections.abc import Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.config import JsonDict

from fleetrank.analysis.stored.columns import FAMILIES, ORIGINS, PRECISIONS, STORED_RUNTIMES, TIERS
from fleetrank.analysis.stored.load import DEFAULT_ORIGINS
from fleetrank.analysis.stored.selection import Selection
from fleetrank.orchestrator.errors import UsageError

_MAX_TEXT = 500
"""Longer than any name or platform key; a pattern beyond it is a mistake or an attack."""
MAX_SEED = 2**63 - 1
_WORDS = {
    "source_tier": TIERS,
    "target_tier": TIERS,
    "runtime": STORED_RUNTIMES,
    "precision": PRECISIONS,
    "family": FAMILIES,
}
"""Selectors that take one of a closed set of words."""


def _text(description: str, name: str = "") -> str | None:
    """A text that selects all when it is not given."""
    extra: JsonDict = {"maxLength": _MAX_TEXT}
    if name in _WORDS:
        extra = {"enum": list(_WORDS[name])}
    found: str | None = Field(default=None, description=description, json_schema_extra=extra)
    return found


class TableFormat(StrEnum):
    """How a table is written; `analysis.tables.formats` does it."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"


class Selectors(BaseModel):
    """The selectors of `report show`, of the API and of the server's pages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sweep: str | None = _text("One sweep; otherwise the newest of each model and platform.")
    source: str | None = _text("A device, or a platform with * in it.")
    target: str | None = _text("Likewise.")
    source_tier: str | None = _text("gpu, cpu or edge.", "source_tier")
    target_tier: str | None = _text("Likewise.", "target_tier")
    runtime: str | None = _text("Such as tflite; qnn is imported only.", "runtime")
    precision: str | None = _text("fp32, fp16, bf16 or int8.", "precision")
    family: str | None = _text("Such as transformer.", "family")
    model: str | None = _text("A model, or names with * in them.")
    settings: tuple[str, ...] = Field(
        default=(),
        alias="set",
        description="NAME=VALUE: what this table alone can be told.",
    )
    include_simulated: bool = Field(
        default=False, description="Take virtual and simulated devices in, under a banner."
    )
    seed: int = Field(
        default=0, ge=0, le=MAX_SEED, description="Of bootstrap, permutation and null."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _drop_empty(cls, value: object) -> object:
        """A form sends its empty fields, too."""
        if isinstance(value, list | tuple):
            return tuple(part for part in value if part != "")
        return None if value == "" else value

    def selection(self) -> Selection:
        """The same for the analysis.

        Raises:
            UsageError: a word is none of those there are, a text is too long, or a setting has no
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
        """A misspelt word would select nothing and blame the results."""
        for name, text in self:
            if isinstance(text, str) and len(text) > _MAX_TEXT:
                raise UsageError(
                    f"the {_spoken(name)} has {len(text)} letters",
                    f"no name and no pattern has more than {_MAX_TEXT}",
                )
            if isinstance(text, str) and text not in (known := _WORDS.get(name, (text,))):
                raise UsageError(f"there is no {_spoken(name)} '{text}'", f"use {', '.join(known)}")


def origins_of(*, include_simulated: bool) -> tuple[str, ...]:
    """Which rows enter figures."""
    return ORIGINS if include_simulated else DEFAULT_ORIGINS


def describe(name: str) -> str:
    """What a selector means, for the help of an option."""
    return str(Selectors.model_fields[name].description)


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _settings(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    for text in given:
        if "=" not in text or text.startswith("="):
            raise UsageError(f"the setting '{text}' has no value", "write NAME=VALUE, such as k=5")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in given))
