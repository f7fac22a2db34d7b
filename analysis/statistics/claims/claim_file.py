"""A file of claims: what a study says, and which figure of which table says it here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import TypeAdapter

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import part_of
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import parse_toml
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Checked, Key, checked
from fleetrank.foundation.visible_text import visible_line
from fleetrank.foundation.wording import did_you_mean

TABLE = "claims"
BESIDE = (
    "n_models", "n_pairs", "low", "high", "null_mean", "residual_null_mean", "ceiling"
)  # fmt: skip
"""What may stand beside the figure of a claim."""
_SELECTORS = (
    "source", "target", "source_tier", "target_tier", "runtime", "precision", "family"
)  # fmt: skip
_MOST_CLAIMS, _LONGEST = 200, 300
_STUDY = Path(__file__).with_name("study.toml")


class Rule(StrEnum):
    """What a claim says of its figure: that it is the value, or below or above it."""

    EQUAL = "equal"
    BELOW = "below"
    ABOVE = "above"


def plain_text(text: str) -> str:
    """The text, if it can be shown on a line of a table; raises `ValueError` otherwise."""
    if visible_line(text) != text or not 0 < len(text) <= _LONGEST:
        raise ValueError(f"write 1 to {_LONGEST} characters of plain text on one line")
    return text


_Text = Annotated[str, Checked(plain_text)]
_Texts = Mapping[_Text, _Text]
_Number = Annotated[float, Key()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFigure:
    """Where a figure is, and what stands beside it.

    Attributes:
        table: a table, or `TABLE/PART`.
        settings: of the table.
        row: columns to the word that the row has there.
        column: of the figure.
        beside: what stands beside it, to the column that has it, or to a number; without it, the
            column of the same name if there is one.
        note: stands behind the claim if this figure counts, such as `without memory`.
    """

    __pydantic_config__ = NO_OTHER_KEYS

    table: _Text
    settings: _Texts = field(default_factory=dict)
    row: _Texts = field(default_factory=dict)
    column: _Text
    beside: Mapping[Annotated[str, Key(words=BESIDE)], _Text | _Number] = field(
        default_factory=dict
    )
    note: _Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim.

    Attributes:
        figure: names of figures; the first that the selected rows have counts.
        row: further columns of the row, beside those of the figure.
        selection: the rows that it is about, where they are not those that the user selected.
        value: that the study states; `None` shows the figure beside others, without a verdict.
        least_rows: of the table, of which the mean is meant.
    """

    __pydantic_config__ = NO_OTHER_KEYS

    claim: _Text
    figure: tuple[_Text, ...]
    row: _Texts = field(default_factory=dict)
    selection: Mapping[Annotated[str, Key(words=_SELECTORS)], _Text] = field(default_factory=dict)
    value: _Number | None = None
    rule: Annotated[Rule, Key(words=tuple(Rule))] = Rule.EQUAL
    least_rows: Annotated[int, Key(ge=1, le=100)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The file. `notes` are shown below the table."""

    __pydantic_config__ = NO_OTHER_KEYS

    title: _Text
    notes: tuple[_Text, ...] = ()
    figures: Mapping[_Text, ClaimFigure]
    claims: tuple[Claim, ...]


_FORM: TypeAdapter[Claims] = TypeAdapter(Claims)


def parse_claims(text: str, where: str) -> Claims:
    """The claims of a TOML text; `where` names the file in messages.

    Raises:
        BadFileError: it is not such a file, or names a table, setting or figure that does not
            exist; the message has the place, the remedy the nearest word.
    """
    found = checked(_FORM, parse_toml(text, where), where)
    if not 0 < len(found.claims) <= _MOST_CLAIMS:
        raise BadFileError(f"{where} has {len(found.claims)} claims", f"write 1 to {_MOST_CLAIMS}")
    for name, figure in found.figures.items():
        try:
            part = part_of(figure.table)
            part.refuse_wrong_settings(Selection(settings=tuple(figure.settings.items())))
        except AnalysisError as error:
            place = f"{where}: key 'figures.{name}'"
            raise BadFileError(f"{place}: {error.message}", error.remedy) from error
        if part.table == TABLE:
            raise BadFileError(
                f"{where}: key 'figures.{name}': a claim cannot be about the table of claims",
                "name the table that has the figure",
            )
    for number, claim in enumerate(found.claims, 1):
        for name in claim.figure or ("",):
            if name not in found.figures:
                raise BadFileError(
                    f"{where}: claim {number} names the figure '{name}', which is not in 'figures'",
                    f"{did_you_mean(name, found.figures)}there are {', '.join(found.figures)}",
                )
    return found


@cache
def study_claims() -> Claims:
    """The claims of the study that fleetrank reproduces."""
    return parse_claims(_STUDY.read_text(encoding="utf-8"), _STUDY.name)
