"""The child that parses tokenizers and images: its limits, and errors of its libraries."""

import io
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer, models, normalizers

from fleetrank.models.calibration import PictureForm
from fleetrank.models.cards.card import Preprocessing
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.picture_data import read_picture_data
from fleetrank.orchestrator.evaluation.user_data import DataChild, open_tokenizer

pytestmark = pytest.mark.slow
SMALL_BYTES = 1 << 30


@pytest.fixture
def child() -> Iterator[DataChild]:
    with closing(DataChild(SMALL_BYTES)) as child:
        yield child


def _tokenizer(folder: Path, *steps: normalizers.Normalizer) -> str:
    opened = Tokenizer(models.WordLevel({"a": 0, "b": 3}, unk_token="a"))
    opened.normalizer = normalizers.Sequence(list(steps))
    opened.save(str(folder / "tokenizer.json"))
    return str(folder / "tokenizer.json")


def test_tokens_and_images_come_from_the_child(tmp_path: Path, child: DataChild) -> None:
    found = open_tokenizer(_tokenizer(tmp_path), child)
    assert (found.size, found.encode("b"), found.encode("")) == (4, [3], [])
    (tmp_path / "set" / "x").mkdir(parents=True)
    Image.new("L", (4, 4), 51).save(tmp_path / "set" / "x" / "0.png")
    form = PictureForm(shape=(1, 1, 2, 2), preprocessing=Preprocessing(mean=(0,), std=(1,)))
    given = read_picture_data(tmp_path / "set").input_of(0, form, child)
    np.testing.assert_allclose(given, np.full((1, 1, 2, 2), 0.2))


@pytest.mark.thorough
def test_a_text_that_grows_without_bounds_ends_at_the_limit(
    tmp_path: Path, child: DataChild
) -> None:
    step = normalizers.Replace("b", "b" * 10_000)
    found = open_tokenizer(_tokenizer(tmp_path, step, step, step), child)
    with pytest.raises(UsageError, match=r"tokenizer\.json.*1024 MiB"):
        found.encode("b")
    with pytest.raises(UsageError, match="no tokenizer is open"):
        found.encode("a")


def test_a_file_that_takes_too_long_ends_at_the_limit(
    tmp_path: Path, child: DataChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetrank.orchestrator.evaluation.user_data._START_S", 0.0)
    with pytest.raises(UsageError, match=r"tokenizer\.json took longer"):
        open_tokenizer(_tokenizer(tmp_path), child)


def test_a_panic_of_the_library_is_an_error_with_the_name_of_the_file(
    tmp_path: Path, child: DataChild
) -> None:
    path = Path(_tokenizer(tmp_path))
    # The library's reader of this map panics where it should raise.
    content = json.loads(path.read_text())
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"tokenizer\.json.*Panic"):
        open_tokenizer(str(path), child)


def test_an_image_of_too_many_pixels_is_refused(tmp_path: Path, child: DataChild) -> None:
    (tmp_path / "set" / "x").mkdir(parents=True)
    buffer = io.BytesIO()
    Image.new("1", (14_000, 14_000)).save(buffer, "PNG")
    (tmp_path / "set" / "x" / "0.png").write_bytes(buffer.getvalue())
    form = PictureForm(shape=(1, 3, 2, 2), preprocessing=Preprocessing())
    with pytest.raises(UsageError, match=r"0\.png"):
        read_picture_data(tmp_path / "set").input_of(0, form, child)
