"""Data for the ranges of integer networks: what is taken, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from wording import has

from fleetrank.models.calibration import find_calibration, read_calibration
from fleetrank.models.cards.card import Preprocessing
from fleetrank.models.errors import CardError, ExportError
from fleetrank.models.export import quantize
from fleetrank.models.networks.examples import INPUT_SEED

SHAPE = (3, 4, 4)
AS_IT_IS = Preprocessing(crop=1, mean=(0,), std=(1 / 255,))


def _array(tmp_path: Path, values: np.ndarray) -> Path:
    np.save(tmp_path / "data.npy", values)
    return tmp_path / "data.npy"


def test_cases_are_taken_at_equal_distances(tmp_path: Path) -> None:
    values = np.broadcast_to(np.arange(10.0)[:, None, None, None], (10, *SHAPE))
    path = _array(tmp_path, values)
    found = read_calibration(find_calibration(path, 4), SHAPE)
    assert found[:, 0, 0, 0].tolist() == [0, 3, 6, 9]
    assert len(read_calibration(find_calibration(path), SHAPE)) == 10


def test_images_are_scaled_as_asked(tmp_path: Path) -> None:
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (8, 8), (number + 1, 0, 9)).save(tmp_path / folder / "x.png")
    (tmp_path / "labels.txt").write_text("not an image")
    found = read_calibration(find_calibration(tmp_path, 9, AS_IT_IS), SHAPE)
    assert found.shape == (2, *SHAPE)
    assert found[:, :, 0, 0].tolist() == [[1, 0, 9], [2, 0, 9]]
    usual = find_calibration(tmp_path, 9)
    assert usual.sha256 != find_calibration(tmp_path, 9, AS_IT_IS).sha256


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.ones((1, *SHAPE)), ("one case",)),
        (np.zeros((4, *SHAPE)), ("only zeros",)),
        (np.full((4, *SHAPE), np.nan), ("not finite",)),
        (np.ones((4, 4, 4, 3)), ("shape (4, 4, 4, 3)", "(cases, 3, 4, 4)")),
        (np.array(None), ("cannot be read",)),
        (np.full((4, *SHAPE), "1.5"), ("type <U3", "not numbers")),
    ],
)
def test_data_that_cannot_calibrate_are_refused(
    tmp_path: Path, values: np.ndarray, words: tuple[str, ...]
) -> None:
    given = find_calibration(_array(tmp_path, values))
    with pytest.raises(ExportError) as error:
        read_calibration(given, SHAPE)
    assert has(error.value.message, *words)


def test_data_that_changed_are_refused(tmp_path: Path) -> None:
    given = find_calibration(_array(tmp_path, np.ones((4, *SHAPE))))
    _array(tmp_path, np.full((4, *SHAPE), 2.0))
    with pytest.raises(ExportError, match="changed"):
        read_calibration(given, SHAPE)


def test_a_folder_without_images_and_a_missing_path_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CardError):
            find_calibration(path)


def test_only_the_images_that_are_used_are_read(tmp_path: Path) -> None:
    for number in range(5):
        Image.new("RGB", (4, 4), (number + 1, 0, 0)).save(tmp_path / f"{number}.png")
    given = find_calibration(tmp_path, 3)
    Image.new("RGB", (4, 4), (99, 0, 0)).save(tmp_path / "1.png")
    assert find_calibration(tmp_path, 3) == given
    Image.new("RGB", (4, 4), (99, 0, 0)).save(tmp_path / "2.png")
    assert find_calibration(tmp_path, 3) != given


def test_more_cases_than_memory_holds_are_refused(tmp_path: Path) -> None:
    given = find_calibration(_array(tmp_path, np.ones((4, *SHAPE))), 100_000)
    with pytest.raises(ExportError) as error:
        read_calibration(given, (3, 512, 512))
    assert has(error.value.remedy, "682 cases fit")


def test_calibration_sees_other_numbers_than_the_verification() -> None:
    assert quantize._SEED != INPUT_SEED


@pytest.mark.parametrize("header", [b"{'descr': '<f8', (", b"{'descr': [[[", b"\xff" * 9])
def test_a_damaged_array_is_named_whatever_numpy_raises(tmp_path: Path, header: bytes) -> None:
    path = _array(tmp_path, np.ones((4, *SHAPE)))
    content = path.read_bytes()
    path.write_bytes(content[:10] + header + content[10 + len(header) :])
    with pytest.raises(ExportError, match="cannot be read"):
        read_calibration(find_calibration(path), SHAPE)
