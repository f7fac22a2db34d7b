"""Images to classify: a folder with a folder of each class, or a Parquet file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetrank.foundation.codec import to_json
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.small_file import read_small_bytes, read_small_text
from fleetrank.foundation.wording import count_of
from fleetrank.models.calibration import PICTURE_SUFFIXES, PictureForm
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.text_data import data_sha256, read_examples
from fleetrank.orchestrator.evaluation.user_data import LARGEST_FILE_BYTES, Act, DataChild
from fleetrank.orchestrator.extras import is_installed

_FORM = (
    "give a folder with one folder of images for each class, or a Parquet file with the columns "
)
_COLUMNS = "image and label"


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureData:
    """Images with their classes.

    Attributes:
        labels: number of the class of each image.
        n_classes: number of classes that the data names; `None` if it only numbers them.
        content_of: the bytes of the image of a number, and what they are called in messages.
    """

    name: str
    sha256: str
    labels: tuple[int, ...]
    n_classes: int | None
    content_of: Callable[[int], tuple[bytes, str]]

    def input_of(self, number: int, form: PictureForm, child: DataChild) -> NDArray[np.float32]:
        """The image of a number as the input of a model.

        Raises:
            BadFileError: it is not a regular file, or too large.
            UsageError: it is not an image.
        """
        content, where = self.content_of(number)
        values = child.ask(Act.PICTURE, where, content, to_json(form))
        return np.frombuffer(values, dtype=np.float32).reshape(form.shape)


def read_picture_data(path: Path, classes: Path | None = None) -> PictureData:
    """Reads names and labels; images are opened one by one.

    Args:
        path: a folder of classes, or a Parquet file.
        classes: a text file with the names of the classes in the order of the model's outputs, one
            on each line; without it, the folders in the order of their names.

    Raises:
        BadFileError: a file is missing, not regular, or too large.
        UsageError: the library is missing, a class is unknown, or there are no images.
    """
    if not is_installed("PIL"):
        raise UsageError("images need Pillow", "pip install pillow")
    if path.is_dir():
        return _of_folder(path, _class_names(path, classes))
    if path.suffix == ".parquet":
        return _of_parquet(path)
    raise UsageError(f"{path} has no images", _FORM + _COLUMNS)


def _class_names(path: Path, classes: Path | None) -> list[str]:
    folders = sorted(folder.name for folder in path.iterdir() if folder.is_dir())
    if classes is None:
        return folders
    lines = read_small_text(classes).split("\n")
    known = [name.strip() for name in lines if name.strip()]
    if unknown := sorted(set(folders) - set(known)):
        raise UsageError(f"{classes} lacks the classes {', '.join(unknown[:5])}", "add them")
    return known


def _of_folder(path: Path, classes: Sequence[str]) -> PictureData:
    found = [
        (file, number)
        for number, name in enumerate(classes)
        for file in sorted((path / name).glob("*"))
        if file.suffix.lower() in PICTURE_SUFFIXES
    ]
    if not found:
        raise UsageError(f"{path} has no images", _FORM + _COLUMNS)
    return PictureData(
        name=path.name,
        sha256=data_sha256(path, "*/*"),
        labels=tuple(number for _, number in found),
        n_classes=len(classes),
        content_of=lambda number: (
            read_small_bytes(found[number][0], LARGEST_FILE_BYTES),
            str(found[number][0]),
        ),
    )


def _of_parquet(path: Path) -> PictureData:
    rows = read_examples(path, {"image": ("image", "img"), "label": ("label", "labels")})
    with failing_as(UsageError, f"{path}: a label is not a number", _FORM + _COLUMNS):
        labels = tuple(int(str(row["label"])) for row in rows)
    if min(labels) < 0:
        raise UsageError(f"{path} has images without a label", "use a split with labels")
    return PictureData(
        name=path.name,
        sha256=data_sha256(path),
        labels=labels,
        n_classes=None,
        content_of=lambda number: (_bytes(rows[number]["image"]), f"{path}, row {number + 1}"),
    )


def _bytes(value: object) -> bytes:
    """Data sets on the Hub store bytes with a path; other files only the bytes."""
    inner = value.get("bytes") if isinstance(value, dict) else value
    return inner if isinstance(inner, bytes) else b""


def refuse_unfit_classes(data: PictureData, n_outputs: int, model: str) -> None:
    """Checks that the model has one output for each class.

    Raises:
        UsageError: it has another number of outputs.
    """
    if data.n_classes is not None and data.n_classes != n_outputs:
        raise UsageError(
            f"{data.name} has {count_of(data.n_classes, 'class', 'classes')}, {model} has "
            f"{n_outputs:,} outputs",
            "name the classes of the model's outputs with `classes=FILE`",
        )
