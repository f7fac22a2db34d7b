"""What a user selects: rows, and the settings of a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import overload

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS, SCHEMA
from fleetrank.foundation.argument_checks import (
    count_given,
    instance_of,
    number_of,
    pairs_of,
    text_of,
    texts_of,
)
from fleetrank.foundation.user_file import plain_number
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import did_you_mean
from fleetrank.foundation.workload import IMAGE, Workload

Named = str | Sequence[str] | None
"""One name, several, or `None` for all."""
MARGIN = 0.05
"""The only default margin, of `faster`, its page and tables, `ab`, `report compare` and tests.

It separates equal from undecided; it decides an order only where the noise is not known. Users do
not notice a smaller difference, and two processes of one model differ by as much.
"""
CHANGE_ALPHA = 0.05
"""Accepted share of wrong claims among the changes with one kind of verdict."""
PRECISION_OF_KEY = r"^((?:[^/]+/){4})[^/]+"
"""The precision in a platform key, behind the four parts that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected rows; `None` selects all.

    Attributes:
        sweep: id of one sweep, or of several; the newest of each model and platform among them.
        source, target: a device, or a platform key in which `*` matches any text. A table of single
            platforms shows those that match `source`; a target is an error there.
        model: a name in which `*` matches any text, or several, of which a model fits one. `n3`
            is `lab:n3` where no model is named `n3` and only one ends so.
        precision: one precision, or `ANY_PRECISION`.
        max_memory_mib: on a platform, only models with a known peak memory up to this, in MiB; it
            limits cells, not the lists of attempts.
        workload: what one inference does, such as `decode@512`; a table is about one. `None` is
            `image`, or the only workload of the selected rows.
        where: further columns of text, each with the value that its rows must have.
        allow_unlike_batch: also compare tiers over pairs of platforms with different batches;
            not by default, because a ranking can change with the batch, and published rows of
            GPUs have batch 256 and more, those of CPUs 1.
        allow_unlike_border: also rank files that take floats with files that take integers; not by
            default, because the time of only one contains quantising.
        seed: of every random step: bootstrap, permutation, null.
        settings: further settings of a single table, see `TableSpec`; read by `setting`.
        notes: how names were understood; each table with figures of cells has them.

    Raises:
        AnalysisError: `sweep` or `model` is an empty list, `where` names no column of text, or
            `workload` is not the text of one.
        ArgumentError: a field has the wrong type.
    """

    sweep: Named = None
    source: str | None = None
    target: str | None = None
    source_tier: str | None = None
    target_tier: str | None = None
    runtime: str | None = None
    precision: str | None = None
    family: str | None = None
    model: Named = None
    max_memory_mib: float | None = None
    where: tuple[tuple[str, str], ...] = ()
    workload: str | None = None
    origins: tuple[str, ...] = DEFAULT_ORIGINS
    allow_unlike_batch: bool = False
    allow_unlike_border: bool = False
    seed: int = 0
    settings: tuple[tuple[str, float | str], ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks the fields; keeps names as tuples, so that equal selections compare as equal."""
        object.__setattr__(self, "sweep", names_of(self.sweep) or None)
        object.__setattr__(self, "model", names_of(self.model) or None)
        object.__setattr__(self, "origins", texts_of("origins", self.origins))
        _check_types(self)

    @property
    def sweeps(self) -> tuple[str, ...]:
        """The ids of the selected sweeps; empty selects all."""
        return names_of(self.sweep)

    @property
    def models(self) -> tuple[str, ...]:
        """The names and patterns of the selected models; empty selects all."""
        return names_of(self.model)

    @property
    def rows(self) -> tuple[object, ...]:
        """The fields that decide about rows and panel: equal ones give the same of a frame."""
        return (
            self.sweep, self.runtime, self.precision, self.family, self.model, self.where,
            self.workload, self.origins, self.max_memory_mib, self.allow_unlike_batch,
            self.allow_unlike_border,
        )  # fmt: skip


_TEXTS = (
    "source",
    "target",
    "source_tier",
    "target_tier",
    "runtime",
    "precision",
    "family",
    "workload",
)


def _check_types(selection: Selection) -> None:
    for name in _TEXTS:
        if (given := getattr(selection, name)) is not None:
            text_of(name, given)
    if selection.max_memory_mib is not None:
        number_of("max_memory_mib", selection.max_memory_mib, above=-1, most=math.inf)
    count_given("seed", selection.seed, least=0, most=2**63 - 1)
    instance_of("allow_unlike_batch", selection.allow_unlike_batch, bool)
    instance_of("allow_unlike_border", selection.allow_unlike_border, bool)
    _check_workload(selection.workload)
    pairs_of("settings", selection.settings)
    pairs_of("where", selection.where)
    for name, value in selection.where:
        text_of(f"the value of {name}", value)
        if SCHEMA.get(name) != pl.String:
            known = [column for column, dtype in SCHEMA.items() if dtype == pl.String]
            raise AnalysisError(
                f"no column of text is named '{name}'",
                f"{did_you_mean(name, known)}the reference lists the columns",
            )


def _check_workload(given: str | None) -> None:
    try:
        Workload.parse(str(IMAGE) if given is None else given)
    except ValueError as error:
        raise AnalysisError(f"'{shortened(str(given))}' is not a workload", str(error)) from error


def names_of(given: Named) -> tuple[str, ...]:
    """The names, each once, in their order; empty for `None`.

    Raises:
        AnalysisError: the list is empty: a program that found no name must not select all rows.
        ArgumentError: it is neither a name nor a list of names.
    """
    if given is None:
        return ()
    if names := tuple(dict.fromkeys((given,) if isinstance(given, str) else _names(given))):
        return names
    raise AnalysisError("the list of names is empty", "give a name, or None to select all")


def _names(given: Sequence[str]) -> tuple[str, ...]:
    return texts_of("the selection of names", given)


@overload
def setting(selection: Selection, name: str, default: float) -> float: ...


@overload
def setting(selection: Selection, name: str, default: str) -> str: ...


def setting(selection: Selection, name: str, default: float | str) -> float | str:
    """The user's value, with the type of the default, or else the default; the last value counts.

    Raises:
        AnalysisError: the value must be a number but is not.
    """
    given = dict(selection.settings).get(name, default)
    if isinstance(default, str):
        return str(given)
    try:
        return plain_number(str(given))
    except ValueError as error:
        raise AnalysisError(
            f"{name}={given} is not a number", f"such as `set {name}={default:g}`"
        ) from error


def margin_of(selection: Selection, default: float) -> float:
    """The largest difference of no interest: the user's, else the default.

    Raises:
        AnalysisError: it is not above 0 and below 10.
    """
    margin = setting(selection, "margin", default)
    if not 0 < margin < 10:
        raise AnalysisError(f"margin {margin:g} is out of range", "such as `set margin=0.05`")
    return margin


def fits_text(pattern: str, text: str) -> bool:
    """Whether a text matches the pattern; `fnmatch` takes steps that grow with the lengths."""
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))
