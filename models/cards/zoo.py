"""The 13 built-in model cards, and those of the user, by name."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from fleetrank.foundation.vocabulary import Family
from fleetrank.foundation.wording import nearest
from fleetrank.models.cards.card import ModelCard, Source
from fleetrank.models.errors import CardError

ZOO_PATH = Path(__file__).with_name("zoo.toml")


def load_zoo() -> dict[str, ModelCard]:
    """The built-in networks by name; needs only the standard library."""
    with ZOO_PATH.open("rb") as file:
        tables = tomllib.load(file)
    return {name: _zoo_card(name, table) for name, table in tables.items()}


def load_cards(folder: Path | None) -> dict[str, ModelCard]:
    """The built-in cards and the user's `*.toml` in `folder` (if it exists), by name.

    Raises:
        CardError: a card is invalid or its name already exists; names file, key and remedy.
    """
    cards = load_zoo()
    if folder is None or not folder.is_dir():
        return cards
    # Imported here because it needs pydantic, which may be missing on a GPU host that only exports.
    from fleetrank.models.cards.user_cards import load_user_card

    for path in sorted(folder.glob("*.toml")):
        card = load_user_card(path)
        if card.name in cards:
            raise CardError(
                f"{path}: a model named {card.name!r} already exists",
                "give the card another name",
            )
        cards[card.name] = card
    return cards


def find_card(cards: Mapping[str, ModelCard], name: str) -> ModelCard:
    """The card of that name.

    Raises:
        CardError: the name is unknown; the remedy names the nearest one.
    """
    if name in cards:
        return cards[name]
    guess = nearest(name, cards)
    remedy = f"did you mean {guess!r}?" if guess else f"known models: {', '.join(sorted(cards))}"
    raise CardError(f"unknown model {name!r}", remedy)


def _zoo_card(name: str, table: Mapping[str, object]) -> ModelCard:
    # TOML gives plain types; the cast to enums is the only conversion, and a test loads every card.
    values: dict[str, object] = dict(table)
    values["family"] = Family(str(table["family"]))
    values["source"] = Source(str(table["source"]))
    return ModelCard(name=name, **values)  # type: ignore[arg-type]
