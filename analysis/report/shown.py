"""Chooses the models and platforms on the page if there are too many for one page."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from fleetrank.analysis.figures.labels import chosen_platforms, models_by_latency, platform_labels
from fleetrank.analysis.stored.columns import FAMILIES, PRECISIONS, STORED_RUNTIMES, TIERS

MAX_MODELS = 40
"""A panel with more rows is not readable."""
MAX_CELLS = 4500
"""Values (model on platform) on the page; they take about 2 MB."""
ELSEWHERE = "x"
"""Marks a row about something that is not on the page; any filter hides the row."""
_WORDS = {
    "tier": ("t", TIERS), "runtime": ("r", STORED_RUNTIMES), "precision": ("c", PRECISIONS),
    "family": ("f", FAMILIES),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The contents of the page; all tables and charts use these numbers of platforms and models.

    The class has no slots, because `cached_property` needs a `__dict__`.

    Attributes:
        platforms: key to short name, in the order to show.
        names: key to short name of every platform in the results.
        models: from the fastest to the slowest.
        devices: in the order of their platforms.
        cells: rows of `cells_table.cell_values` of these models and platforms.
        notes: which data is not shown, and where to see it.
    """

    platforms: Mapping[str, str]
    names: Mapping[str, str]
    models: tuple[str, ...]
    devices: tuple[str, ...]
    cells: pl.DataFrame
    notes: tuple[str, ...]

    @cached_property
    def platform_at(self) -> dict[str, int]:
        """Number of each platform."""
        return {key: number for number, key in enumerate(self.platforms)}

    @cached_property
    def model_at(self) -> dict[str, int]:
        """Number of each model."""
        return {name: number for number, name in enumerate(self.models)}

    @cached_property
    def device_at(self) -> dict[str, int]:
        """Number of each device."""
        return {name: number for number, name in enumerate(self.devices)}

    def tokens(self, row: Mapping[str, object]) -> str:
        """The subjects of a table's row, as tokens for the filter.

        `p3` is the fourth platform, `m` a model, `d` a device; `t`, `r`, `c`, `f` precede a tier,
        runtime, precision or family. A row is hidden when one of its subjects is hidden.
        """
        found = [self._token(name, row.get(name)) for name in _ABOUT if row.get(name) is not None]
        return " ".join(dict.fromkeys(word for word in found if word))

    def _token(self, column: str, value: object) -> str | None:
        text = str(value)
        if column in _WORDS:
            letter, known = _WORDS[column]
            return letter + text if text in known else None
        if column in {"source", "target"}:
            if text in self.platform_at:
                return f"p{self.platform_at[text]}"
            of_group = self._token("tier", text) or self._token("runtime", text)
            return of_group or (ELSEWHERE if text in self.names else None)
        letter, lookup = {
            "platform_key": ("p", self.platform_at),
            "model": ("m", self.model_at),
            "device": ("d", self.device_at),
        }[column]
        return f"{letter}{lookup[text]}" if text in lookup else ELSEWHERE


_ABOUT = ("platform_key", "source", "target", "model", "device", *_WORDS)


def choose_shown(cells: pl.DataFrame) -> Shown:
    """All, or the models measured on most platforms and an equal share of each tier's platforms."""
    names = platform_labels(cells)
    counts = cells.group_by("model").agg(pl.col("platform_key").n_unique().alias("n"))
    ordered = counts.sort("n", "model", descending=[True, False])["model"].to_list()
    models = set(ordered[:MAX_MODELS])
    of_models = cells.filter(pl.col("model").is_in(list(models)))
    platforms = chosen_platforms(of_models, MAX_CELLS // len(models))
    shown = of_models.filter(pl.col("platform_key").is_in(list(platforms)))
    speed = {name: number for number, name in enumerate(models_by_latency(shown))}
    device_of = dict(shown.select("platform_key", "device").iter_rows())
    return Shown(
        # The name still distinguishes it from every other platform in the results.
        platforms={key: names[key] for key in platforms},
        names=names,
        models=tuple(sorted(models, key=lambda name: (speed.get(name, len(models)), name))),
        devices=tuple(dict.fromkeys(str(device_of[key]) for key in platforms)),
        cells=shown,
        notes=tuple(_left_out(len(models), len(ordered), len(platforms), len(names))),
    )


def _left_out(n_models: int, of_models: int, n_platforms: int, of_platforms: int) -> list[str]:
    notes = []
    if n_models < of_models:
        notes.append(
            f"This page shows {n_models:,} of {of_models:,} models: those measured on the most "
            "platforms. Ranks, correlations and frontiers use all; `fleetrank report show "
            "latency --model NAME` prints the others."
        )
    if n_platforms < of_platforms:
        notes.append(
            f"This page shows {n_platforms:,} of {of_platforms:,} platforms, an equal share of "
            "each tier; `fleetrank report show latency` prints all."
        )
    return notes
