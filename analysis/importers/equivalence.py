"""Which names of a source are networks of our model cards, by declaration only."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetrank.analysis.importers.release import Row

TABLE = Path(__file__).with_name("equivalence.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A figure and its source."""

    value: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalences:
    """The declarations about the names of one source.

    Attributes:
        equal: name in the source to the name of our card.
        unequal: names that only look alike, to the reason.
        macs: multiply-accumulates of the cards.
    """

    source: str
    equal: Mapping[str, str]
    unequal: Mapping[str, str]
    macs: Mapping[str, Published]


def load_equivalences(source: str) -> Equivalences:
    """The declarations for one source; empty for a source that is not in the table."""
    with TABLE.open("rb") as file:
        table = tomllib.load(file)
    mine = table.get(source, {"equal": {}, "unequal": {}})
    macs = {
        card: Published(value=entry["value"], source=entry["published"])
        for card, entry in table["macs"].items()
    }
    return Equivalences(source=source, equal=mine["equal"], unequal=mine["unequal"], macs=macs)


def named(row: Row, name: str, table: Equivalences) -> Row:
    """The row under the model's name here: our card's where declared, else `<source>:<name>`.

    A card's MACs replace the source's, so that a model has the same FLOPs in every source.
    """
    card = table.equal.get(name)
    if card is None:
        return row | {"model": f"{table.source}:{name}"}
    derived = f"model: declared equal to card {card}, {name} in {table.source}"
    macs = table.macs.get(card)
    figures = {} if macs is None else flops_columns(macs.value, f"{macs.source}, by equivalence")
    listed = row.get("derived")
    return (
        row
        | {"model": card, "derived": [*(listed if isinstance(listed, list) else []), derived]}
        | figures
    )


def flops_columns(macs: int | None, source: str) -> Row:
    """Published MACs and FLOPs; empty without them."""
    if macs is None:
        return {}
    return {
        "macs": macs,
        "flops": 2 * macs,
        "flops_method": "published",
        "flops_source": source,
    }


def unequal_notes(names: set[str], table: Equivalences) -> tuple[str, ...]:
    """One sentence for each name of a source that is similar to a card but another network."""
    return tuple(
        f"{table.source}:{name} is kept apart: {why}."
        for name, why in sorted(table.unequal.items())
        if name in names
    )
