"""What is on the page: its models and platforms if there are too many, and how it names them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from fleetrank.analysis.figures import chosen_platforms, models_by_latency, platform_labels
from fleetrank.analysis.statistics.measured.latency_tables import own_first
from fleetrank.analysis.stored.columns import FAMILIES, PRECISIONS, STORED_RUNTIMES, TIERS
from fleetrank.foundation.vocabulary import Origin

MAX_MODELS = 40
"""A panel with more rows is not readable; only own models can be more."""
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
        cells: rows of `cell_values.cell_values` of these models and platforms.
        notes: which data is not shown, and where to see it.
        left_out: what the page leaves out because there is too much, by the name of a column. A
            model that was not measured in the page's workload is not left out: sections on other
            workloads show it.
    """

    platforms: Mapping[str, str]
    names: Mapping[str, str]
    models: tuple[str, ...]
    cells: pl.DataFrame
    notes: tuple[str, ...]
    left_out: Mapping[str, frozenset[str]]

    @cached_property
    def platform_at(self) -> dict[str, int]:
        """Number of each platform."""
        return {key: number for number, key in enumerate(self.platforms)}

    @cached_property
    def model_at(self) -> dict[str, int]:
        """Number of each model."""
        return {name: number for number, name in enumerate(self.models)}

    def on_page(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that are not about a model, platform or device that the page leaves out."""
        known = [name for name in self.left_out if name in rows.columns]
        is_out = [pl.col(name).is_in(list(self.left_out[name])) for name in known]
        return rows.filter(~pl.any_horizontal(is_out).fill_null(value=False)) if is_out else rows

    def subjects(self, row: Mapping[str, object]) -> Mapping[str, str] | None:
        """What a table's row is about, by kind; a filter hides it when one of these is hidden.

        A platform is its number on the page, anything else its name. Two platforms, tiers or
        runtimes (source and target) are separated by a space.

        Returns:
            `None` if the row is about a model, platform or device that the page leaves out.
        """
        texts = {name: str(value) for name, value in row.items() if value is not None}
        if self._is_left_out(texts):
            return None
        found: dict[str, list[str]] = {}
        if (key := texts.get("platform_key")) in self.platform_at:
            found["platform"] = [str(self.platform_at[str(key)])]
        for side in _SIDES:
            kind, word = self._side(texts.get(side, ""))
            if kind and word not in found.setdefault(kind, []):
                found[kind].append(word)
        for name in ("model", "device", *_WORDS):
            text = texts.get(name)
            if text in _WORDS.get(name, (text,)) and text not in found.get(name, (None,)):
                found.setdefault(name, []).append(str(text))
        return {kind: " ".join(found[kind]) for kind in SUBJECTS if kind in found}

    def _is_left_out(self, texts: Mapping[str, str]) -> bool:
        platforms = self.left_out.get("platform_key", frozenset())
        return any(texts.get(name) in out for name, out in self.left_out.items()) or any(
            texts.get(side) in platforms for side in _SIDES
        )

    def _side(self, text: str) -> tuple[str, str]:
        """Kind and name of a source or target; the kind of any other text is empty."""
        if text in self.platform_at:
            return "platform", str(self.platform_at[text])
        kinds = (kind for kind in ("tier", "runtime") if text in _WORDS[kind])
        return next(kinds, ""), text


def choose_shown(cells: pl.DataFrame) -> Shown:
    """All, or the user's own models and platforms first, then imported ones up to the limits.

    Imported models follow that share a device with the own ones, those on most platforms first;
    every own model is shown. Of imported platforms each tier has an equal share.
    """
    names = platform_labels(cells).names
    is_own = pl.col("origin") != Origin.IMPORTED
    n_own = cells.filter(is_own)["model"].n_unique()
    ordered = own_first(cells, "model")
    models = set(ordered[: max(MAX_MODELS, n_own)])
    of_models = cells.filter(pl.col("model").is_in(list(models)))
    room = max(MAX_CELLS // len(models), 1)
    mine = chosen_platforms(of_models.filter(is_own), room)
    others = chosen_platforms(of_models.filter(~is_own), room - len(mine))
    platforms = [key for key in names if key in mine or key in others]
    shown = of_models.filter(pl.col("platform_key").is_in(list(platforms)))
    speed = {name: number for number, name in enumerate(models_by_latency(shown))}
    kept = {"platform_key": set(platforms), "model": models, "device": set(shown["device"])}
    return Shown(
        # The name still distinguishes it from every other platform in the results.
        platforms={key: names[key] for key in platforms},
        names=names,
        models=tuple(sorted(models, key=lambda name: (speed.get(name, len(models)), name))),
        cells=shown,
        notes=tuple(_left_out(len(models), len(ordered), len(platforms), len(names))),
        left_out={name: frozenset(set(cells[name]) - some) for name, some in kept.items()},
    )


def _left_out(n_models: int, of_models: int, n_platforms: int, of_platforms: int) -> list[str]:
    notes = []
    if n_models < of_models:
        notes.append(
            f"This page shows {n_models:,} of {of_models:,} models: your own, then those published "
            "for the most platforms. Ranks, correlations and frontiers use all; the table "
            "`latency` with `model=NAME` lists the others."
        )
    if n_platforms < of_platforms:
        notes.append(
            f"This page shows {n_platforms:,} of {of_platforms:,} platforms: your own, then an "
            "equal share of each tier; `fleetrank report show latency` prints all."
        )
    return notes
