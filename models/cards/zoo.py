"""The built-in model cards, 13 of images and those of text, and those of the user, by name."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.errors import did_you_mean, raise_together
from fleetrank.foundation.vocabulary import Family
from fleetrank.models.cards.card import ModelCard, Source, language_card
from fleetrank.models.cards.language import Activation, Bias, LanguageShape, Norm, Positions
from fleetrank.models.errors import CardError

ZOO_PATH = Path(__file__).with_name("zoo.toml")
LANGUAGE_ZOO_PATH = Path(__file__).with_name("language.toml")
_WORDS = {"norm": Norm, "positions": Positions, "activation": Activation, "bias": Bias}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """All model cards of a workspace.

    Attributes:
        good: the valid cards by name, the built-in ones first.
        bad: the error of each invalid card, by the name that it claims; a name that two cards claim
            is here too.
    """

    good: Mapping[str, ModelCard]
    bad: Mapping[str, CardError]

    def find(self, name: str) -> ModelCard:
        """The card of that name.

        Raises:
            CardError: the card is invalid, or the name is unknown; the remedy names the nearest.
        """
        if name in self.bad:
            raise self.bad[name]
        return find_card(self.good, name)

    def check(self, names: Iterable[str]) -> None:
        """Checks that no name is that of an invalid card.

        Raises:
            CardError: names every one of them.
        """
        raise_together([self.bad[name] for name in names if name in self.bad])


def load_zoo() -> dict[str, ModelCard]:
    """The built-in networks for images by name; needs only the standard library."""
    with ZOO_PATH.open("rb") as file:
        tables = tomllib.load(file)
    return {name: _zoo_card(name, table) for name, table in tables.items()}


def load_language_zoo() -> dict[str, ModelCard]:
    """The built-in decoders and encoders of text by name; needs only the standard library."""
    with LANGUAGE_ZOO_PATH.open("rb") as file:
        tables = tomllib.load(file)
    return {name: _language_card(name, table) for name, table in tables.items()}


def load_cards(folder: Path | None) -> Cards:
    """The built-in cards and the user's `*.toml` in `folder` (if it exists).

    An invalid card does not affect the others: its error names file, key and remedy.
    """
    cards = load_zoo() | load_language_zoo()
    bad: dict[str, CardError] = {}
    if folder is None or not folder.is_dir():
        return Cards(good=cards, bad=bad)
    # Imported here because it needs pydantic, which may be missing on a GPU host that only exports.
    from fleetrank.models.cards.user_cards import load_user_card

    for path in sorted(folder.glob("*.toml")):
        try:
            card = load_user_card(path)
        except CardError as error:
            bad[path.stem] = error
            continue
        if card.name in cards:
            bad[card.name] = CardError(
                f"{path}: a model named {card.name!r} already exists",
                "give the card another name",
            )
        else:
            cards[card.name] = card
    return Cards(good=cards, bad=bad)


def find_card(cards: Mapping[str, ModelCard], name: str) -> ModelCard:
    """The card of that name.

    Raises:
        CardError: the name is unknown; the remedy names the nearest one.
    """
    if name in cards:
        return cards[name]
    known = f"known models: {', '.join(sorted(cards))}"
    raise CardError(f"unknown model {name!r}", did_you_mean(name, cards, known))


def _zoo_card(name: str, table: Mapping[str, object]) -> ModelCard:
    # TOML gives plain types; the cast to enums is the only conversion, and a test loads every card.
    values: dict[str, object] = dict(table)
    values["family"] = Family(str(table["family"]))
    values["source"] = Source(str(table["source"]))
    return ModelCard(name=name, **values)  # type: ignore[arg-type]


def _language_card(name: str, table: Mapping[str, object]) -> ModelCard:
    values: dict[str, object] = dict(table)
    family = Family(str(values.pop("family")))
    for key, words in _WORDS.items():
        if key in values:
            values[key] = words(str(values[key]))
    return language_card(name, family, LanguageShape(**values))  # type: ignore[arg-type]
