"""The identity of a model: its card and the bytes of the files that the card names.

This is the only module that reads those files. Planning, keys and rows use its result.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import Precision
from fleetrank.models.cards.card import ModelCard, ResolvedCard, Source, external_data, own_format
from fleetrank.models.errors import CardError
from fleetrank.models.number_types import read_types

Hashes = tuple[tuple[str, str], ...]
"""(path, sha256) of the files with values of inputs."""
_WHERE_NOT_WHAT = ("import_folder", "axes", "is_fixed_size")
"""Not part of the identity; sizes of axes are part of the cell instead."""


def resolve(card: ModelCard) -> ResolvedCard:
    """Reads the files that a card names, if it names any, and adds its identity.

    Raises:
        CardError: the file cannot be read, has another precision than the card states, or neither
            of them states one.
    """
    hashes = _value_hashes(card)
    return ResolvedCard(
        card=card,
        sha256=_card_sha256(card, hashes),
        precision=_precision(card) if card.source is Source.FILE else None,
        value_hashes=hashes,
    )


def card_sha256(card: ModelCard) -> str:
    """The identity of a card; its file need not state a precision.

    A file is identified by its bytes, not its path. An entry point is also identified by its
    source in the workspace, so that an edited network counts as a different network.

    Raises:
        CardError: the file cannot be read.
    """
    return _card_sha256(card, _value_hashes(card))


def _card_sha256(card: ModelCard, hashes: Hashes) -> str:
    fields = {name: value for name, value in asdict(card).items() if name not in _WHERE_NOT_WHAT}
    for rule in (one["values"] for one in fields["inputs"] if one["values"] is not None):
        # The bytes of the values instead of where they are.
        rule["file"] = dict(hashes).get(rule["file"])
    if card.source is Source.FILE:
        fields["entry"] = Path(card.entry).suffix
        fields["content"] = _tree_sha256(Path(card.entry))
    elif card.source is Source.ENTRY_POINT and card.import_folder is not None:
        fields["content"] = _source_sha256(Path(card.import_folder), card.entry)
    return _json_sha256(fields)


def _value_hashes(card: ModelCard) -> Hashes:
    paths = dict.fromkeys(one.path for one in card.inputs if one.path is not None)
    try:
        return tuple((path, file_sha256(Path(path))) for path in paths)
    except OSError as error:
        raise CardError(
            f"cannot read the input values of {card.name}: {error.filename}: {error.strerror}",
            "correct 'file' in its card; a relative path starts at the card's folder",
        ) from error


def _precision(card: ModelCard) -> Precision | None:
    """What the file says, otherwise what its card states.

    `None` only for a file of which the export says more: it is damaged, takes text, or must be
    converted first.
    """
    format_ = own_format(card)
    types = None if format_ is None else read_types(Path(card.entry), format_)
    found = None if types is None else types.precision
    is_readable = types is not None and not types.strings
    if is_readable and found is None and card.precision is None:
        raise CardError(*why_unknown(card))
    if card.precision is None or found in {None, card.precision}:
        return found or card.precision
    raise CardError(
        f"the card of {card.name} states precision {card.precision}, but the weights of "
        f"{card.entry} are {found}",
        f"remove 'precision' from the card, or state {found}",
    )


def why_unknown(card: ModelCard) -> tuple[str, str]:
    """Message and remedy for a file whose precision is not known."""
    return (
        f"{card.entry} does not say its precision",
        f'add precision = "{Precision.INT8}", or what it was exported in, to the card of '
        f"{card.name} in the folder 'cards'; it can be {', '.join(Precision)}",
    )


def _json_sha256(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _tree_sha256(path: Path) -> str:
    try:
        parts = [(name, file_sha256(file)) for name, file in _files_of(path)]
    except OSError as error:
        raise CardError(
            f"cannot read the model file {path}: {error.strerror}",
            "correct 'entry' in its card; a relative path starts at the card's folder",
        ) from error
    return _json_sha256(parts)


def _source_sha256(folder: Path, entry: str) -> str | None:
    """Hash of the module's file or its top-level package; `None` if installed elsewhere."""
    package = entry.partition(":")[0].split(".")[0]
    if (folder / f"{package}.py").is_file():
        return _tree_sha256(folder / f"{package}.py")
    files = sorted((folder / package).rglob("*.py"))
    if not files:
        return None
    return _json_sha256([(f.relative_to(folder).as_posix(), file_sha256(f)) for f in files])


def _files_of(path: Path) -> Iterator[tuple[str, Path]]:
    """Name and file: of a SavedModel's files, or of a file and its external data.

    A single file has no name, so that it can be renamed.
    """
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        yield from ((file.relative_to(path).as_posix(), file) for file in files)
        return
    yield "", path
    yield from ((name, file) for name, file in external_data(path).items() if file.is_file())
