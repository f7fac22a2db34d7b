"""Turns a model that a command names, a file or a name, into the name of a card."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fleetrank.analysis.stored.name_patterns import split_precision
from fleetrank.foundation.files import replace_file
from fleetrank.foundation.small_file import check_regular, read_small_text, resolved
from fleetrank.foundation.vocabulary import Family, Format
from fleetrank.models.architectures import CONFIG, shape_of
from fleetrank.models.cards.card import FORMATS_OF_SUFFIX, ModelCard, Source, format_of_suffix
from fleetrank.models.cards.identity import card_sha256
from fleetrank.models.cards.inputs import axis_names
from fleetrank.models.cards.language_card import language_card
from fleetrank.models.cards.zoo import Cards, card_text, load_cards
from fleetrank.models.errors import CardError
from fleetrank.models.file_inputs import inputs_of
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.input_rules import with_rules
from fleetrank.orchestrator.workspace.workspace import Workspace

_HEAD = "# Written by fleetrank for a file with the identity "
"""First line of a card that this module wrote; with the identity in it an old card is found."""
_ENTRY_LINE = re.compile(r"^entry = .*$", re.MULTILINE)
_UNSAFE_IN_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_STEM = 60
"""Characters of a file's name in the name of its card; a name has at most 100."""
_NAME_DIGITS = 8
"""Hexadecimal digits of the identity in a name; different files with one name are rare."""
_SAVED_MODEL = "saved_model.pb"
_READ_SUFFIXES = frozenset(f".{format_}" for format_ in Format)
"""Files in a format that runs as it is; others are converted, and state no inputs."""
_FORMATS = (
    f"give a file ending in {', '.join(FORMATS_OF_SUFFIX)}, or a SavedModel folder; `fleetrank "
    "doctor` lists the runtimes that other packages add"
)
_WEIGHTS = frozenset({".pt", ".pth", ".ckpt", ".bin", ".safetensors"})
_EXPORTING = Path(__file__).parents[1] / "templates/exporting.txt"


def model_named(workspace: Workspace, argument: str, rules: Sequence[str] = ()) -> str:
    """The name of the model that a command's argument means.

    A name of a card is returned as it is. For the folder of a published language model, the name is
    that of a card with the numbers of its `config.json`, which is written if there is none. For
    another path, the name is that of the user's card with this
    file, otherwise of a card that is written: `STEM-IDENTITY`, where the identity follows from the
    file's content. The same content therefore has the same name in every folder, and a changed
    file has another. Keys that a person adds to such a card stay. The card of a file with free axes
    other than the batch states the inputs of the file.

    Args:
        workspace: its `cards/` gets the new card.
        argument: a name of a card, or the path of a model file.
        rules: values of inputs of the file, as `with_rules` takes them. The card that
            is written states them, and other cards of the file are not used.

    Raises:
        CardError: the card is invalid, the file cannot be read, or there is neither a card nor a
            file; the remedy names the nearest card.
        UsageError: the file is missing or has no known format, several cards name it, its card
            would overwrite another one, or a rule is not valid.
        StorageError: the card cannot be written.
    """
    cards = load_cards(workspace.cards)
    if argument in cards.good or argument in cards.bad or not _is_path(argument):
        name = cards.find(argument).name
        if rules:
            raise UsageError(
                f"{name} has a card, which states its inputs", "change the card, or name a file"
            )
        return name
    if is_published_folder(argument):
        if rules:
            raise UsageError(
                f"{argument} is a language model, whose inputs follow from its numbers",
                "leave out the rules of inputs",
            )
        return _folder_card(workspace, cards, resolved(Path(argument)))
    path = _model_file(argument)
    if not rules and (found := _name_of_card_with(workspace, cards, path)):
        return found
    return _own_card(workspace, cards, _new_card(path, rules))


def given_precision(argument: str) -> tuple[str, str | None]:
    """A model as `NAME:PRECISION`, and its precision; `None` without, and of a path that exists."""
    return (argument, None) if os.path.lexists(argument) else split_precision(argument)


def is_published_folder(argument: str) -> bool:
    """Whether a command's argument is the folder of a published language model."""
    return (Path(argument) / CONFIG).is_file()


def _folder_card(workspace: Workspace, cards: Cards, folder: Path) -> str:
    """The name of the card with the numbers of a folder's `config.json`; writes it if needed.

    Raises:
        BadFileError: the file is damaged, or a number is not valid.
        ExportError: its architecture is not supported.
    """
    shape = shape_of(folder)
    if known := [card.name for card in cards.good.values() if card.language == shape]:
        return known[0]
    card = language_card("folder", Family.OTHER, shape)
    name = _name_for(folder.name, card_sha256(card))
    path = _card_path(workspace, name)
    path.parent.mkdir(exist_ok=True)
    replace_file(path, f"{card_text(replace(card, name=name, entry=name))}\n".encode())
    return name


def _name_for(stem: str, identity: str) -> str:
    stem = _UNSAFE_IN_NAME.sub("-", stem)[:_LONGEST_STEM].strip("-._")
    return f"{stem or 'model'}-{identity[:_NAME_DIGITS]}"


def _new_card(path: Path, rules: Sequence[str]) -> ModelCard:
    """The card of a file before its name is known."""
    card = ModelCard(
        name="file", family=Family.OTHER, source=Source.FILE, entry=str(path), input_size=None
    )
    format_ = Format(path.suffix[1:].lower()) if path.suffix.lower() in _READ_SUFFIXES else None
    if format_ is None:
        if rules:
            raise UsageError(
                f"values of inputs cannot be given for {path.name}: its inputs are known only "
                "after the conversion",
                "run it without them; then add [[inputs]] to the card that is written",
            )
        return card
    try:
        inputs = inputs_of(path, format_)
    except CardError:
        # The export reports what is wrong with a file of the other formats.
        if rules or format_ is Format.ONNX:
            raise
        return card
    needs_inputs = bool(rules or axis_names(inputs))
    return replace(card, inputs=with_rules(inputs, rules)) if needs_inputs else card


def _is_path(argument: str) -> bool:
    path = Path(argument)
    return (
        path.parent != Path()
        or os.path.lexists(path)
        or format_of_suffix(path.suffix.lower()) is not None
    )


def _model_file(argument: str) -> Path:
    """The absolute path of a file that can be a model."""
    has_weights = Path(argument).is_dir() or Path(argument).suffix.lower() in _WEIGHTS
    remedy = (_EXPORTING.read_text(encoding="utf-8") if has_weights else "") + _FORMATS
    try:
        path = resolved(Path(argument))
        is_saved_model = (path / _SAVED_MODEL).is_file()
        if not is_saved_model:
            check_regular(path)
        str(path).encode()
    except FileNotFoundError as error:
        raise UsageError(f"{argument} does not exist", "check the path") from error
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the name {argument} is not valid UTF-8", "rename the file or its folder"
        ) from error
    except OSError as error:
        raise UsageError(f"{argument} cannot be measured: {error.strerror}", remedy) from error
    if format_of_suffix(path.suffix.lower()) is None and not is_saved_model:
        raise UsageError(f"{argument} has an unsupported format", remedy)
    return path


def _name_of_card_with(workspace: Workspace, cards: Cards, path: Path) -> str | None:
    """The name of the user's card that names the file; `None` without one."""
    names = [
        card.name
        for card in cards.good.values()
        if card.source is Source.FILE
        and card.entry == str(path)
        and _identity_in(workspace, card.name) is None
    ]
    if len(names) > 1:
        raise UsageError(
            f"several cards name the file {path}: {', '.join(names)}", "give one of these names"
        )
    return names[0] if names else None


def _own_card(workspace: Workspace, cards: Cards, card: ModelCard) -> str:
    """The name of the file's own card; writes it, or corrects a path that is out of date."""
    path, identity = Path(card.entry), card_sha256(card)
    name = _name_for(path.stem, identity)
    card_path = _card_path(workspace, name)
    # Relative in the workspace, which can be moved as a whole.
    inside = path.is_relative_to(workspace.root)
    entry = os.path.relpath(path, workspace.cards) if inside else str(path)
    text = f"{_HEAD}{identity}.\n{card_text(replace(card, name=name, entry=entry))}\n"
    text = text.replace("\x7f", "\\u007f")  # TOML escapes what JSON does, and also DEL
    if name not in cards.good and not os.path.lexists(card_path):
        card_path.parent.mkdir(exist_ok=True)
        replace_file(card_path, text.encode())
        return name
    if _identity_in(workspace, name) != identity or name in cards.bad:
        cards.check([name])
        raise UsageError(
            f"{card_path.name} in {card_path.parent} is not the card of {path}",
            "rename or remove that card",
        )
    there = cards.find(name).entry
    if there != card.entry and not _has_content(replace(card, entry=there), identity):
        (entry,) = _ENTRY_LINE.findall(text)
        corrected = _ENTRY_LINE.sub(lambda _match: entry, read_small_text(card_path), count=1)
        replace_file(card_path, corrected.encode())
    return name


def _has_content(card: ModelCard, identity: str) -> bool:
    """Whether the file that a card names still exists with this content."""
    try:
        return card_sha256(card) == identity
    except CardError:
        return False


def _identity_in(workspace: Workspace, name: str) -> str | None:
    """The identity in the head of a card that this module wrote; `None` for another card."""
    path = _card_path(workspace, name)
    if not path.is_file():
        return None
    first = read_small_text(path).partition("\n")[0]
    return first.removeprefix(_HEAD).removesuffix(".") if first.startswith(_HEAD) else None


def _card_path(workspace: Workspace, name: str) -> Path:
    return workspace.cards / f"{name}.toml"
