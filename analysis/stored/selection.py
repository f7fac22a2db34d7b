"""What a table is made of: the rows that a user selects, and the settings of one table."""

import math
from dataclasses import dataclass
from typing import overload

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.load import DEFAULT_ORIGINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to look at; `None` selects all.

    Attributes:
        sweep: id of one sweep; otherwise the newest of each model and platform.
        source, target: a device, or a platform key in which `*` stands for anything. A table of
            single platforms shows those that fit `source`, and refuses a target.
        model: its name, in which `*` stands for anything.
        seed: of every random step: bootstrap, permutation, null.
        settings: what a single table can be told beyond that, see `SETTINGS`; read by `setting`.
    """

    sweep: str | None = None
    source: str | None = None
    target: str | None = None
    source_tier: str | None = None
    target_tier: str | None = None
    runtime: str | None = None
    precision: str | None = None
    family: str | None = None
    model: str | None = None
    origins: tuple[str, ...] = DEFAULT_ORIGINS
    seed: int = 0
    settings: tuple[tuple[str, float | str], ...] = ()


@overload
def setting(selection: Selection, name: str, default: float) -> float: ...
@overload
def setting(selection: Selection, name: str, default: str) -> str: ...
def setting(selection: Selection, name: str, default: float | str) -> float | str:
    """What the user set, of the default's kind, or the default; the last one counts.

    Raises:
        AnalysisError: a number is expected and something else is given.
    """
    given = dict(selection.settings).get(name, default)
    if isinstance(default, str):
        return str(given)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise AnalysisError(f"{name}={given} is no number", f"such as --set {name}={default:g}")
    return value
