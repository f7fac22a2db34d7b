"""Model cards: the 13 built-in ones, the user's, and the identity used in cell keys."""

import functools
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Family, Format, WeightsKind
from fleetrank.foundation.wording import nearest
from fleetrank.models.cards.card import (
    FORMATS_OF_SUFFIX,
    ExportRequest,
    ModelCard,
    Source,
    Weights,
    external_data_names,
)
from fleetrank.models.errors import CardError

ZOO_PATH = Path(__file__).with_name("zoo.toml")

_WHERE_NOT_WHAT = ("import_folder",)


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


def formats_of(card: ModelCard) -> tuple[Format, ...]:
    """The formats that a network can be exported to: all, or only that of the user's file."""
    if card.source is not Source.FILE:
        return tuple(Format)
    suffix = Path(card.entry).suffix.lower()
    # A SavedModel is a folder and has no suffix.
    return (FORMATS_OF_SUFFIX.get(suffix, Format.TFLITE),)


def runtime_of(request: ExportRequest) -> str:
    """The runtime that executes the requested file."""
    return RUNTIME_OF_FORMAT[request.format]


def card_sha256(card: ModelCard) -> str:
    """The identity of a card's content; part of the cell key, equal on every machine.

    A file is identified by its bytes, not its path. An entry point is also identified by its
    source in the workspace, so that an edited network counts as a different network.

    Raises:
        CardError: the file cannot be read.
    """
    fields = {name: value for name, value in asdict(card).items() if name not in _WHERE_NOT_WHAT}
    if card.source is Source.FILE:
        fields["entry"] = Path(card.entry).suffix
        fields["content"] = _tree_sha256(Path(card.entry))
    elif card.source is Source.ENTRY_POINT and card.import_folder is not None:
        fields["content"] = _source_sha256(Path(card.import_folder), card.entry)
    return _json_sha256(fields)


def weights_id(card: ModelCard, weights: Weights) -> str:
    """A short readable name of these exact weights, such as `seeded-0`; part of the cell key."""
    if card.source is Source.FILE:
        return str(WeightsKind.EMBEDDED)
    if weights.kind is WeightsKind.SEEDED:
        return f"{weights.kind}-{weights.seed}"
    if weights.kind is WeightsKind.PRETRAINED:
        return f"{weights.kind}-{card.weights_tag}"
    return f"{weights.kind}-{weights.checkpoint_sha256}"


def _zoo_card(name: str, table: Mapping[str, object]) -> ModelCard:
    # TOML gives plain types; the cast to enums is the only conversion, and a test loads every card.
    values: dict[str, object] = dict(table)
    values["family"] = Family(str(table["family"]))
    values["source"] = Source(str(table["source"]))
    return ModelCard(name=name, **values)  # type: ignore[arg-type]


def _json_sha256(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _tree_sha256(path: Path) -> str:
    try:
        parts = [
            (_name_in(path, file), _known_file_sha256(file, *_stamp(file)))
            for file in _files_of(path)
        ]
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


def _files_of(path: Path) -> Iterator[Path]:
    """The file itself, a SavedModel's files, or a file together with its external data."""
    if path.is_dir():
        yield from sorted(p for p in path.rglob("*") if p.is_file())
        return
    yield path
    beside = (path.with_name(name) for name in external_data_names(path))
    yield from (file for file in beside if file.is_file())


def _name_in(path: Path, file: Path) -> str:
    """The name used in the hash: relative path in a folder; only the suffix for a single file."""
    return file.relative_to(path).as_posix() if path.is_dir() else file.name[len(path.name) :]


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=256)
def _known_file_sha256(path: Path, mtime_ns: int, size_bytes: int) -> str:  # noqa: ARG001
    """Caches the hash, because planning needs it for every cell; reads an unchanged file once."""
    return file_sha256(path)
