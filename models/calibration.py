"""Data that a user gives for the ranges of values in an integer network: images, or an array."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetrank.foundation.files import file_sha256, read_small_bytes
from fleetrank.models.cards.card import Calibration, Preprocessing
from fleetrank.models.errors import CardError, ExportError
from fleetrank.models.pictures import (
    PICTURE_SUFFIXES,
    PictureForm,
    as_input,
    opened_image,
)

DEFAULT_CASES = 256
_LARGEST_BYTES = 256 << 20
"""Of one image."""
_FORM = "give a folder of images, or a .npy file of shape (cases, *sizes of one case) with numbers"


def find_calibration(
    path: Path, n: int = DEFAULT_CASES, preprocessing: Preprocessing | None = None
) -> Calibration:
    """The data of a path, identified by their content.

    Raises:
        CardError: there are none, or they cannot be read.
    """
    try:
        files = _files_of(path)
        parts = [(file.relative_to(path).as_posix(), file_sha256(file)) for file in files]
    except OSError as error:
        raise CardError(f"{path} cannot be read: {error.strerror}", _FORM) from error
    if not parts:
        raise CardError(f"{path} has no images", _FORM)
    form = preprocessing or Preprocessing()
    content = (parts, None if path.is_file() else asdict(form))
    sha256 = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return Calibration(path=str(path), n=n, sha256=sha256, preprocessing=form)


def read_calibration(given: Calibration, shape: Sequence[int]) -> NDArray[np.float32]:
    """Cases of shape (cases, *shape); of more than asked for, those at equal distances.

    Raises:
        CardError: the data cannot be read.
        ExportError: the data changed, are of another shape, or cannot give a range of values.
    """
    path = Path(given.path)
    if find_calibration(path, given.n, given.preprocessing) != given:
        raise ExportError(f"{path} changed after the sweep was planned", "start a new sweep")
    is_array = path.is_file()
    cases = _of_array(path, given.n, shape) if is_array else _of_pictures(given, shape)
    reason = None
    if len(cases) < 2:
        reason = "has one case, which shows no range of values"
    elif not np.isfinite(cases).all():
        reason = "has values that are not finite"
    elif not cases.any():
        reason = "has only zeros, which show no range of values"
    if reason is not None:
        raise ExportError(f"{path} {reason}", "give data that the model meets in use")
    return cases


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = (file for file in path.rglob("*") if file.suffix.lower() in PICTURE_SUFFIXES)
    return sorted(found)


def _spread(count: int, n: int) -> NDArray[np.int64]:
    """Numbers at equal distances: folders of classes follow one another."""
    return np.unique(np.linspace(0, count - 1, min(n, count)).round().astype(np.int64))


def _of_array(path: Path, n: int, shape: Sequence[int]) -> NDArray[np.float32]:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ExportError(f"{path} cannot be read: {error}", _FORM) from error
    if not isinstance(found, np.ndarray) or found.shape[1:] != tuple(shape) or not len(found):
        sizes = getattr(found, "shape", "no array")
        raise ExportError(f"{path} has the shape {sizes}, not (cases, {_text(shape)})", _FORM)
    return np.asarray(found[_spread(len(found), n)], dtype=np.float32)


def _text(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def _of_pictures(given: Calibration, shape: Sequence[int]) -> NDArray[np.float32]:
    path = Path(given.path)
    if len(shape) != 3 or shape[0] not in {1, 3}:
        raise ExportError(
            f"images in {path} cannot be an input of sizes {_text(shape)}",
            "give a .npy file with inputs of the model",
        )
    files = _files_of(path)
    form = PictureForm(shape=(1, *shape), preprocessing=given.preprocessing)
    chosen = [files[number] for number in _spread(len(files), given.n)]
    contents = ((read_small_bytes(file, _LARGEST_BYTES), str(file)) for file in chosen)
    return np.concatenate([as_input(opened_image(*one), form) for one in contents])
