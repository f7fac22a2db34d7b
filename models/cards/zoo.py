"""The built-in model cards, 13 of images and those of text, and those of the user, by name.

The cards of the user are `cards/*.toml`; they are read and written here.
"""

import contextlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, TypeAdapter

from fleetrank.foundation.errors import BadFileError, raise_together
from fleetrank.foundation.plain_data import read_toml
from fleetrank.foundation.small_file import check_regular, resolved
from fleetrank.foundation.user_file import checked
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import Family
from fleetrank.foundation.wording import did_you_mean
from fleetrank.foundation.workload import CONTEXT, TOKENS
from fleetrank.models.cards.card import (
    FORMATS_OF_SUFFIX,
    CardKeys,
    ModelCard,
    Source,
    external_data,
    format_of_suffix,
)
from fleetrank.models.cards.inputs import BATCH, CardInput, names_in
from fleetrank.models.cards.language import (
    DECODER_WORKLOADS,
    Activation,
    Bias,
    LanguageShape,
    Norm,
    Positions,
)
from fleetrank.models.cards.language_card import language_card
from fleetrank.models.errors import CardError

_NOT_OF_LANGUAGE = {
    "inputs", "axes", "workloads", "input_size", "is_fixed_size", "weights_tag", "macs",
    "parameters", "accuracy_top1",
}  # fmt: skip
"""Keys whose values follow from the numbers of a network of text, or that it does not have."""
_ENTRY_POINT = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")


def _prepared(table: object) -> object:
    """Fills what other keys decide: a file or stated inputs have no usual size of images."""
    if not isinstance(table, dict):
        return table
    if table.get("source") == Source.LANGUAGE:
        if others := table.keys() & _NOT_OF_LANGUAGE:
            raise ValueError(f"source = 'language' has no key '{min(others)}'")
        # The numbers define a network of text; `entry` would only repeat its name.
        return {"entry": table.get("name"), **table}
    has_size = table.get("source") != Source.FILE and not table.get("inputs")
    return table if has_size else {"input_size": None, **table}


def _checked(card: CardKeys) -> CardKeys:
    if (card.accuracy_top1 is None) != (card.accuracy_source is None):
        raise ValueError(
            "give accuracy_top1 and accuracy_source together: an accuracy needs its source"
        )
    if card.source is Source.ENTRY_POINT and not _ENTRY_POINT.fullmatch(card.entry):
        raise ValueError("an entry point must have the form 'package.module:function'")
    if card.precision is not None and card.source is not Source.FILE:
        raise ValueError("precision is for files only; key 'precision' of a sweep chooses it")
    if card.inputs and card.source not in {Source.FILE, Source.ENTRY_POINT}:
        raise ValueError("inputs are for files and entry points; other networks take images")
    if (card.source is Source.LANGUAGE) != (card.language is not None):
        raise ValueError("source = 'language' and the table [language] go together")
    _check_axes(card)
    _check_workloads(card)
    return card


def _check_axes(card: CardKeys) -> None:
    names, axes = [one.name for one in card.inputs], dict(card.axes)
    if len(set(names)) < len(names):
        raise ValueError("two inputs have the same name")
    used = {name for one in card.inputs for size in one.shape for name in names_in(size)}
    if unused := sorted(axes.keys() - used):
        raise ValueError(f"axes: no input has an axis {unused[0]!r}")
    if BATCH in axes:
        raise ValueError("axes: the size of 'batch' comes from key 'batch' of a sweep")
    if card.workloads and (given := axes.keys() & {TOKENS, CONTEXT}):
        raise ValueError(f"axes: the size of '{min(given)}' comes from the workload")


def _check_workloads(card: CardKeys) -> None:
    """Checks that the inputs of a file are those of its workloads."""
    kinds = card.workloads
    states = [one.state for one in card.inputs if one.state is not None]
    axes = {name for one in card.inputs for size in one.shape for name in names_in(size)}
    if not kinds:
        if states:
            raise ValueError("an input with a state needs the key 'workloads'")
        return
    if len(set(kinds)) < len(kinds):
        raise ValueError("workloads: give each kind once")
    if len(set(states)) < len(states):
        raise ValueError("two inputs have the same state")
    if TOKENS not in axes:
        raise ValueError(f"workloads: no input has an axis {TOKENS!r}")
    is_decoder = [kind in DECODER_WORKLOADS for kind in kinds]
    if any(is_decoder) and not all(is_decoder):
        raise ValueError("workloads: a model is a decoder or an encoder, not both")
    if any(is_decoder) and (not states or CONTEXT not in axes):
        raise ValueError(
            f"workloads: a decoder needs inputs with an axis {CONTEXT!r} and a state, its cache"
        )
    if states and not any(is_decoder):
        raise ValueError("workloads: an encoder has no input with a state")


CARD_FILE: TypeAdapter[CardKeys] = TypeAdapter(
    Annotated[CardKeys, BeforeValidator(_prepared), AfterValidator(_checked)]
)
"""The form of a card."""


def load_user_card(path: Path) -> ModelCard:
    """Reads one card; relative file paths start at the card's folder.

    Raises:
        CardError: unreadable, not TOML, or invalid; names file, key and remedy.
    """
    try:
        card = checked(CARD_FILE, {"name": path.stem, **read_toml(path)}, str(path))
    except BadFileError as error:
        raise CardError(error.message, error.remedy) from error
    if card.language is not None:
        return language_card(card.name, card.family, card.language)
    found = ModelCard(**{one.name: getattr(card, one.name) for one in fields(CardKeys)})
    if card.source is Source.ENTRY_POINT:
        found = replace(found, import_folder=str(path.resolve().parent.parent))
    if card.source is Source.FILE:
        found = replace(found, entry=_entry_path(card, path))
        entry = Path(found.entry)
        if not (format_of_suffix(entry.suffix.lower()) or entry.is_dir()):
            raise CardError(
                f"{path}: {entry} has an unsupported format",
                f"give a file ending in {', '.join(FORMATS_OF_SUFFIX)}, or a SavedModel folder",
            )
    try:
        return replace(found, inputs=tuple(placed(one, path.parent) for one in card.inputs))
    except OSError as error:
        raise CardError(
            f"{path}: key 'inputs': values cannot be read: {_said(error)}", "correct 'file'"
        ) from error


def placed(one: CardInput, folder: Path) -> CardInput:
    """The input with the absolute path of its values, which starts at the folder.

    Raises:
        OSError: the path cannot be resolved.
    """
    if one.values is None or one.values.file is None:
        return one
    return replace(one, values=replace(one.values, file=str(resolved(folder / one.values.file))))


def _entry_path(card: CardKeys, path: Path) -> str:
    try:
        # Makes the path absolute and normalised, but does not resolve a symlinked model.
        entry = resolved(path.parent / card.entry)
        is_folder = entry.is_dir()  # a SavedModel
        with contextlib.suppress(FileNotFoundError):
            if not is_folder:
                check_regular(entry)
                for file in external_data(entry).values():
                    with contextlib.suppress(FileNotFoundError):
                        check_regular(file)
        return str(entry)
    except OSError as error:
        raise CardError(
            f"{path}: key 'entry': '{shortened(card.entry)}' cannot be read: {_said(error)}",
            "correct 'entry'; a relative path starts at the card's folder",
        ) from error


def _said(error: OSError) -> str:
    name = "" if error.filename is None else f"{shortened(Path(error.filename).name)}: "
    return f"{name}{error.strerror}"


def card_text(card: ModelCard) -> str:
    """The card as TOML text, which `load_user_card` reads; keys without a value are left out."""
    # The folder is the location of the card, not part of its content.
    content = {**asdict(card), "import_folder": None, "axes": dict(card.axes)}
    inputs, language = content.pop("inputs"), content.pop("language")
    absent = [name for name in ("is_fixed_size", "axes", "workloads") if not content[name]]
    if language is not None:
        inputs, absent = (), [*absent, "workloads"]
    lines = _lines({name: value for name, value in content.items() if name not in absent})
    for head, table in [("[language]", language or {}), *(("[[inputs]]", one) for one in inputs)]:
        lines += [f"\n{head}", *_lines(table)] if table else []
    return "\n".join(lines)


def _lines(table: dict[str, object]) -> list[str]:
    return [f"{name} = {_toml(value)}" for name, value in table.items() if value is not None]


def _toml(value: object) -> str:
    """TOML writes text, numbers and lists of them as JSON does."""
    if isinstance(value, dict):
        return f"{{ {', '.join(_lines(value))} }}"
    return json.dumps(value, ensure_ascii=False)


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
    from fleetrank.models.cards.zoo import load_user_card

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
