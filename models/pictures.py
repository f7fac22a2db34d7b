"""Images as inputs of a model: decoded, cut and scaled."""

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fleetrank.models.cards.card import Preprocessing
from fleetrank.models.errors import ExportError

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

    try:
        image = Image.open(io.BytesIO(content), formats=_PICTURE_FORMATS)
        image.load()
    except Exception as error:  # Pillow raises anything for a damaged file, SyntaxError too
        raise ExportError(f"{where} is not an image: {error}", "remove or replace it") from error
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
