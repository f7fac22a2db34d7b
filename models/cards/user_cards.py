"""Reads the user's `cards/*.toml`: a Pydantic model, and errors that name the nearest key."""

import contextlib
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import read_toml
from fleetrank.foundation.small_file import check_regular, resolved
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import Family
from fleetrank.foundation.wording import nearest
from fleetrank.models.cards.card import FORMATS_OF_SUFFIX, ModelCard, Source, external_data_names
from fleetrank.models.errors import CardError

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
_ENTRY_POINT = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")


class UserCard(BaseModel):
    """One network of the user, as written in its card."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=_NAME)] = Field(
        description="name used in sweeps (default: the file name without .toml)"
    )
    family: Family = Field(description="kind of architecture")
    source: Source = Field(description="where the network is defined")
    entry: Annotated[str, Field(min_length=1)] = Field(
        description="name in torchvision or timm, a file relative to the card, or "
        "package.module:function"
    )
    input_size: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        default=None,
        description="height and width of the RGB input; not needed if the file contains them",
    )
    weights_tag: str | None = Field(
        default=None, description="tag of the pretrained weights that the accuracy belongs to"
    )
    accuracy_top1: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None, description="ImageNet top-1 in per cent, as published"
    )
    accuracy_source: str | None = Field(
        default=None, description="where it is published; required with accuracy_top1"
    )
    has_attention: bool = Field(default=False, description="used in the FLOPs-shift test")
    macs: Annotated[int, Field(ge=1, lt=2**62)] | Literal["counted"] = Field(
        default="counted",
        description="MACs of one inference at batch 1; counted on networks and ONNX graphs. For "
        "other files state them, otherwise FRM excludes the model",
    )
    parameters: Annotated[int, Field(ge=0, lt=2**63)] | Literal["counted"] = Field(
        default="counted", description="number of parameters; counted where MACs are"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.accuracy_top1 is None) != (self.accuracy_source is None):
            raise ValueError(
                "give accuracy_top1 and accuracy_source together: an accuracy needs its source"
            )
        if self.source is Source.ENTRY_POINT and not _ENTRY_POINT.fullmatch(self.entry):
            raise ValueError("an entry point must have the form 'package.module:function'")
        return self


def load_user_card(path: Path) -> ModelCard:
    """Reads one card; relative file paths start at the card's folder.

    Raises:
        CardError: unreadable, not TOML, or invalid; names file, key and remedy.
    """
    try:
        table = read_toml(path)
    except BadFileError as error:
        raise CardError(error.message, error.remedy) from error
    try:
        card = UserCard.model_validate({"name": path.stem, **table})
    except ValidationError as error:
        raise _card_error(path, error) from error
    model_card = _to_model_card(card, path)
    if card.source is Source.FILE and not _has_known_format(Path(model_card.entry)):
        raise CardError(
            f"{path}: {model_card.entry} has an unsupported format",
            f"give a file ending in {', '.join(FORMATS_OF_SUFFIX)}, or a SavedModel folder",
        )
    return model_card


def _has_known_format(entry: Path) -> bool:
    return entry.suffix.lower() in FORMATS_OF_SUFFIX or entry.is_dir()


def _to_model_card(card: UserCard, path: Path) -> ModelCard:
    is_file = card.source is Source.FILE
    return ModelCard(
        name=card.name,
        family=card.family,
        source=card.source,
        entry=_entry_path(card, path) if is_file else card.entry,
        input_size=card.input_size if is_file else card.input_size or 224,
        weights_tag=card.weights_tag,
        accuracy_top1=card.accuracy_top1,
        accuracy_source=card.accuracy_source,
        has_attention=card.has_attention,
        macs=None if card.macs == "counted" else card.macs,
        parameters=None if card.parameters == "counted" else card.parameters,
        import_folder=str(path.resolve().parent.parent)
        if card.source is Source.ENTRY_POINT
        else None,
    )


def _entry_path(card: UserCard, path: Path) -> str:
    try:
        # Makes the path absolute and normalised, but does not resolve a symlinked model.
        entry = resolved(path.parent / card.entry)
        is_folder = entry.is_dir()  # a SavedModel
        files = () if is_folder else (entry, *map(entry.with_name, external_data_names(entry)))
        for file in files:
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


def _card_error(path: Path, error: ValidationError) -> CardError:
    findings = error.errors(include_url=False, include_input=False)
    first = findings[0]
    place = f"{path}, the first of {len(findings):,} problems" if len(findings) > 1 else str(path)
    key = shortened(".".join(str(part) for part in first["loc"][:1]))
    if first["type"] == "extra_forbidden":
        guess = nearest(key, UserCard.model_fields)
        remedy = f"did you mean {guess!r}?" if guess else _known_keys()
        return CardError(f"{place}: unknown key {key!r}", remedy)
    if first["type"] == "missing":
        return CardError(f"{place}: key {key!r} is missing", f"add it; {_known_keys()}")
    where = f"{place}: {key}" if key else place
    said = shortened(first["msg"].removeprefix("Value error, "), 300)
    return CardError(f"{where}: {said}", "`fleetrank models show resnet18` prints a card")


def _known_keys() -> str:
    return f"a card has the keys: {', '.join(UserCard.model_fields)}"
