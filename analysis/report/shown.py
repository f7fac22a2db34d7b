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
SUBJECTS = ("platform", "model", "device", "tier", "runtime", "precision", "family")
"""What a row can be about: the names of its `data-` attributes, which `state.js` reads."""
_WORDS = {
    "tier": TIERS, "runtime": STORED_RUNTIMES, "precision": PRECISIONS, "family": FAMILIES,
}  # fmt: skip
_SIDES = ("source", "target")


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

    def subjects(self, row: Mapping[str, object]) -> Mapping[str, str] | None:
        """What a table's row is about, by kind; a filter hides it when one of these is hidden.

        A platform is its number on the page, anything else its name. Two platforms, tiers or
        runtimes (source and target) are separated by a space.

        Returns:
            `None` if the row is about a model, platform or device that is not on the page.
        """
        texts = {name: str(value) for name, value in row.items() if value is not None}
        if self._is_elsewhere(texts):
            return None
        found: dict[str, list[str]] = {}
        if (key := texts.get("platform_key")) is not None:
            found["platform"] = [str(self.platform_at[key])]
        for side in _SIDES:
            kind, word = self._side(texts.get(side, ""))
            if kind and word not in found.setdefault(kind, []):
                found[kind].append(word)
        for name in ("model", "device", *_WORDS):
            text = texts.get(name)
            if text in _WORDS.get(name, (text,)) and text not in found.get(name, (None,)):
                found.setdefault(name, []).append(str(text))
        return {kind: " ".join(found[kind]) for kind in SUBJECTS if kind in found}

    def _is_elsewhere(self, texts: Mapping[str, str]) -> bool:
        for name, known in (
            ("platform_key", self.platform_at), ("model", self.model_at),
            ("device", self.device_at),
        ):  # fmt: skip
            if texts.get(name) not in (None, *known):
                return True
        sides = (texts.get(side) for side in _SIDES)
        return any(side in self.names and side not in self.platform_at for side in sides)

    def _side(self, text: str) -> tuple[str, str]:
        """Kind and name of a source or target; the kind of any other text is empty."""
        if text in self.platform_at:
            return "platform", str(self.platform_at[text])
        kinds = (kind for kind in ("tier", "runtime") if text in _WORDS[kind])
        return next(kinds, ""), text


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
