"""Data that a user gives for the ranges of values in an integer network: images, or an array.

An image becomes an input here, decoded, cut and scaled, for evaluations too.
"""

import hashlib
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.small_file import file_sha256, read_small_bytes
from fleetrank.models.cards.card import DEFAULT_CASES, Calibration, Preprocessing
from fleetrank.models.errors import CardError, ExportError
from fleetrank.models.networks.examples import Array

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm"})
_PICTURE_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "WEBP")
"""The content decides, not the name; Pillow would start Ghostscript for PostScript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureForm:
    """The input that an image becomes.

    Attributes:
        shape: (1, channels, height, width); 1 channel takes grey values, 3 take red, green, blue.
    """

    shape: tuple[int, ...]
    preprocessing: Preprocessing


def opened_image(content: bytes, where: str) -> "Image":
    """Decodes an image in this process; the caller limits its memory and time.

    Raises:
        ExportError: it is not an image.
    """
    from PIL import Image

    with failing_as(ExportError, f"{where} is not an image", "remove or replace it"):
        image = Image.open(io.BytesIO(content), formats=_PICTURE_FORMATS)
        image.load()
    return image


def as_input(image: "Image", form: PictureForm) -> NDArray[np.float32]:
    """An image of any size and colours as the input of a model."""
    from PIL import Image

    preprocessing = form.preprocessing
    _, channels, height, width = form.shape
    coloured = image.convert("RGB" if channels == 3 else "L")
    side = preprocessing.crop * min(coloured.size)
    left, top = ((size - side) / 2 for size in coloured.size)
    box = (left, top, left + side, top + side)
    resized = coloured.resize((width, height), Image.Resampling.BILINEAR, box=box)
    values = np.asarray(resized, dtype=np.float32).reshape(height, width, channels) / 255
    mean, std = (np.resize(one, channels) for one in (preprocessing.mean, preprocessing.std))
    scaled = (values - mean) / std
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], dtype=np.float32)


_LARGEST_BYTES = 256 << 20
"""Of one image."""
_MOST_BYTES = 2 << 30
"""Of all cases; an export holds them three times."""
_FORM = "give a folder of images, or a .npy file of shape (cases, *sizes of one case) with numbers"


def find_calibration(
    path: Path, n: int = DEFAULT_CASES, preprocessing: Preprocessing | None = None
) -> Calibration:
    """The data of a path, identified by the names of all images and the content of those used.

    Raises:
        CardError: there are none, or they cannot be read.
    """
    form = preprocessing or Preprocessing()
    with failing_as(CardError, f"{path} cannot be read", _FORM, OSError):
        if path.is_file():
            content: object = file_sha256(path)
        else:
            files = _images_in(path)
            names = [file.relative_to(path).as_posix() for file in files]
            content = (names, [file_sha256(files[k]) for k in _spread(len(files), n)], asdict(form))
    sha256 = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return Calibration(path=str(path), n=n, sha256=sha256, preprocessing=form)


def read_calibration(given: Calibration, shape: Sequence[int]) -> Array:
    """Cases of shape (cases, *shape); of more than asked for, those at equal distances.

    Raises:
        CardError: the data cannot be read.
        ExportError: the data changed, are of another shape, or cannot give a range of values.
    """
    path = Path(given.path)
    if find_calibration(path, given.n, given.preprocessing) != given:
        raise ExportError(f"{path} changed after the sweep was planned", "start a new sweep")
    if (n_bytes := given.n * math.prod(shape) * 4) > _MOST_BYTES:
        raise ExportError(
            f"{given.n} cases of {_text(shape)} values would take {n_bytes >> 30} GiB",
            f"state a smaller `n`: {_MOST_BYTES // (4 * math.prod(shape))} cases fit",
        )
    cases = _of_array(given, shape) if path.is_file() else _of_pictures(given, shape)
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


def _images_in(path: Path) -> list[Path]:
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in PICTURE_SUFFIXES)
    if not found:
        raise CardError(f"{path} has no images", _FORM)
    return found


def _spread(count: int, n: int) -> list[int]:
    """Numbers at equal distances: folders of classes follow one another."""
    chosen = np.linspace(0, count - 1, min(n, count)).round().astype(np.int64)
    return [int(one) for one in np.unique(chosen)]


def _of_array(given: Calibration, shape: Sequence[int]) -> Array:
    path = Path(given.path)
    with failing_as(ExportError, f"{path} cannot be read", _FORM):
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(found, np.ndarray) or found.shape[1:] != tuple(shape) or not len(found):
        sizes = getattr(found, "shape", "no array")
        raise ExportError(f"{path} has the shape {sizes}, not (cases, {_text(shape)})", _FORM)
    if found.dtype.kind not in "fiu":
        raise ExportError(f"{path} has values of type {found.dtype}, not numbers", _FORM)
    cases: Array = np.array(found[_spread(len(found), given.n)])
    return cases


def _text(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def _of_pictures(given: Calibration, shape: Sequence[int]) -> Array:
    path = Path(given.path)
    if len(shape) != 3 or shape[0] not in {1, 3}:
        raise ExportError(
            f"images in {path} cannot be an input of sizes {_text(shape)}",
            "give a .npy file with inputs of the model",
        )
    files = _images_in(path)
    form = PictureForm(shape=(1, *shape), preprocessing=given.preprocessing)
    chosen = [files[number] for number in _spread(len(files), given.n)]
    contents = ((read_small_bytes(file, _LARGEST_BYTES), str(file)) for file in chosen)
    return np.concatenate([as_input(opened_image(*one), form) for one in contents])
