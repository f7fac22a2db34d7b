"""Labelled images: folders of classes, Parquet, and the input that a model gets."""

import contextlib
import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fleetrank.models.calibration import PictureForm, as_input, opened_image
from fleetrank.models.cards.card import Preprocessing
from fleetrank.models.errors import ExportError
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.picture_data import (
    PictureData,
    read_picture_data,
    refuse_unfit_classes,
)
from fleetrank.orchestrator.evaluation.user_data import DataChild


def _png(level: int, size: tuple[int, int] = (8, 8)) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", size, level).save(buffer, "PNG")
    return buffer.getvalue()


_AS_IT_IS = Preprocessing(crop=1, mean=(0,), std=(1 / 255,))


def _level(data: PictureData, number: int, child: DataChild) -> float:
    """The grey level of an image."""
    form = PictureForm(shape=(1, 1, 1, 1), preprocessing=_AS_IT_IS)
    return round(data.input_of(number, form, child).item(), 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, levels in {"cat": (10, 20), "ant": (30,), "bee": ()}.items():
        (tmp_path / "set" / name).mkdir(parents=True)
        for level in levels:
            (tmp_path / "set" / name / f"{level}.png").write_bytes(_png(level))
    return tmp_path / "set"


def test_folders_in_the_order_of_names_are_the_classes(folder: Path, here: DataChild) -> None:
    data = read_picture_data(folder)
    assert (data.labels, data.n_classes) == ((0, 2, 2), 3)
    assert [_level(data, number, here) for number in range(3)] == [30, 10, 20]


def test_a_file_of_classes_gives_the_order(folder: Path, tmp_path: Path) -> None:
    names = tmp_path / "classes.txt"
    names.write_text("dog\ncat\nbee\nant\n")
    data = read_picture_data(folder, names)
    assert (sorted(data.labels), data.n_classes) == ([1, 1, 3], 4)
    refuse_unfit_classes(data, 4, "net")
    with pytest.raises(UsageError, match="4 classes"):
        refuse_unfit_classes(data, 10, "net")
    names.write_text("dog\ncat\n")
    with pytest.raises(UsageError, match="ant, bee"):
        read_picture_data(folder, names)


@pytest.mark.parametrize("is_nested", [True, False])
def test_parquet_holds_images_as_bytes(tmp_path: Path, here: DataChild, is_nested: bool) -> None:
    cells = [{"bytes": _png(7), "path": None}, {"bytes": _png(9), "path": None}]
    images = cells if is_nested else [cell["bytes"] for cell in cells]
    pl.DataFrame({"image": images, "label": [4, 0]}).write_parquet(tmp_path / "x.parquet")
    data = read_picture_data(tmp_path / "x.parquet")
    assert (data.labels, data.n_classes) == ((4, 0), None)
    assert _level(data, 1, here) == 9


def test_a_damaged_image_is_named(folder: Path, here: DataChild) -> None:
    (folder / "ant" / "30.png").write_bytes(_png(1)[:40])
    with pytest.raises(UsageError, match=r"30\.png is not an image"):
        _level(read_picture_data(folder), 0, here)


def test_only_formats_of_images_are_opened_whatever_the_name(
    folder: Path, tmp_path: Path, here: DataChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow hands PostScript to the program `gs`."""
    tools, trace = tmp_path / "tools", tmp_path / "started"
    tools.mkdir()
    (tools / "gs").write_text(f"#!/bin/sh\ntouch {trace}\n")
    (tools / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    text = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    postscript = folder / "cat" / "0.png"
    postscript.write_text(text)
    data = read_picture_data(folder)
    with pytest.raises(UsageError, match="not an image"):
        _level(data, 1, here)
    assert not trace.exists()


@given(places=st.lists(st.tuples(st.integers(8, 90), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_damaged_image_is_an_image_or_an_error_with_its_name(
    places: list[tuple[int, int]],
) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (9, 99, 200)).save(buffer, "PNG")
    content = bytearray(buffer.getvalue())
    for place, flipped in places:
        content[place % len(content)] ^= flipped
    with contextlib.suppress(ExportError):
        opened_image(bytes(content), "x.png")


def test_data_without_images_or_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no images"):
        read_picture_data(tmp_path)
    pl.DataFrame({"image": [b""], "label": [-1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(UsageError, match="without a label"):
        read_picture_data(tmp_path / "x.parquet")


def test_the_input_is_the_scaled_centre() -> None:
    image = Image.new("RGB", (40, 20), (255, 0, 51))
    image.paste((0, 255, 0), (10, 0, 30, 20))
    whole = Preprocessing(crop=1.0, mean=(0.5,), std=(0.25,))
    found = as_input(image, PictureForm(shape=(1, 3, 5, 5), preprocessing=whole))
    assert found.shape == (1, 3, 5, 5)
    assert found.dtype == np.float32
    # The middle square is green.
    np.testing.assert_allclose(found[0, :, 2, 2], [-2, 2, -2])
    grey = as_input(
        Image.new("RGB", (9, 9), (51, 51, 51)),
        PictureForm(shape=(1, 1, 3, 3), preprocessing=Preprocessing(mean=(0,), std=(1,))),
    )
    np.testing.assert_allclose(grey, np.full((1, 1, 3, 3), 0.2))


def test_the_usual_scale_is_that_of_imagenet() -> None:
    found = as_input(
        Image.new("RGB", (300, 260), (124, 116, 104)),
        PictureForm(shape=(1, 3, 224, 224), preprocessing=Preprocessing()),
    )
    assert np.abs(found).max() < 0.02
