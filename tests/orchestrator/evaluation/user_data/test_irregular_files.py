"""Files that never end, or that nobody writes to: each is refused by name."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetrank.foundation.errors import BadFileError
from fleetrank.models.calibration import PictureForm
from fleetrank.models.cards.card import Preprocessing
from fleetrank.orchestrator.evaluation.choice_tasks import read_questions
from fleetrank.orchestrator.evaluation.picture_data import read_picture_data
from fleetrank.orchestrator.evaluation.text_data import read_text_data
from fleetrank.orchestrator.evaluation.user_data import DataChild, open_tokenizer

FORM = PictureForm(shape=(1, 3, 2, 2), preprocessing=Preprocessing())


def _classes(folder: Path, child: DataChild) -> None:
    (folder / "set" / "a").mkdir(parents=True)
    read_picture_data(folder / "set", folder / "x.classes")


READERS: dict[str, Callable[[Path, DataChild], object]] = {
    "x.txt": lambda folder, _: read_text_data(folder / "x.txt"),
    "all.txt": lambda folder, _: read_text_data(folder),
    "x.jsonl": lambda folder, _: read_text_data(folder / "x.jsonl"),
    "x.parquet": lambda folder, _: read_text_data(folder / "x.parquet"),
    "y.parquet": lambda folder, _: read_picture_data(folder / "y.parquet"),
    "x.tsv": lambda folder, _: read_questions("sst2", folder / "x.tsv"),
    "x.json": lambda folder, child: open_tokenizer(str(folder / "x.json"), child),
    "x.model": lambda folder, child: open_tokenizer(str(folder / "x.model"), child),
    "x.classes": _classes,
    "a/x.png": lambda folder, child: read_picture_data(folder).input_of(0, FORM, child),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_a_link_to_a_pipe_or_a_device_is_refused(
    tmp_path: Path, here: DataChild, name: str, kind: str
) -> None:
    target = Path("/dev/zero")
    if kind == "a pipe":
        target = tmp_path / "fifo"
        os.mkfifo(target)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    with pytest.raises(BadFileError, match=kind) as caught:
        READERS[name](tmp_path, here)
    assert str(path) in caught.value.message
