"""What a card's identity covers, and the precision that a file has."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_onnx import save_external, save_tiny_onnx
from wording import has

from fleetrank.foundation.vocabulary import Family, Precision
from fleetrank.models.cards.card import ModelCard, Source
from fleetrank.models.cards.identity import card_sha256, resolve
from fleetrank.models.errors import CardError

DATA = Path(__file__).parents[1] / "data"
PTE = DATA.parents[1] / "device_agents/data/tiny.pte"
"""Its only part is a delegate."""


def card_of(path: Path, precision: Precision | None = None) -> ModelCard:
    return ModelCard(
        name="mine",
        family=Family.OTHER,
        source=Source.FILE,
        entry=str(path),
        input_size=None,
        precision=precision,
    )


def test_a_file_has_the_precision_that_it_states(tmp_path: Path) -> None:
    assert resolve(card_of(save_tiny_onnx(tmp_path / "m.onnx"))).precision == "fp32"
    assert resolve(card_of(DATA / "uint8.tflite")).precision == "int8"
    assert resolve(card_of(DATA / "fp16.tflite")).precision == "fp16"


def test_a_file_that_cannot_say_has_what_its_card_states() -> None:
    assert resolve(card_of(PTE, Precision.INT8)).precision == "int8"


def test_a_file_that_cannot_say_and_whose_card_does_not_is_refused() -> None:
    with pytest.raises(CardError) as caught:
        resolve(card_of(PTE))
    assert has(caught.value.message, "tiny.pte", "precision")
    assert 'add precision = "int8"' in caught.value.remedy
    assert "card of mine" in caught.value.remedy
    assert len(card_sha256(card_of(PTE))) == 64


def test_a_damaged_file_is_left_to_the_export(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(PTE.read_bytes()[:20])
    assert resolve(card_of(path)).precision is None


def test_a_card_that_contradicts_its_file_is_refused() -> None:
    with pytest.raises(CardError) as caught:
        resolve(card_of(DATA / "fp16.tflite", Precision.INT8))
    assert "fp16.tflite are fp16" in caught.value.message
    assert "int8" in caught.value.message
    assert "fp16" in caught.value.remedy


def test_a_model_can_be_renamed_and_its_parts_cannot(tmp_path: Path) -> None:
    for path, part, other in (
        (tmp_path / "saved", "saved/variables/a", "saved/variables/b"),
        (tmp_path / "m.onnx", "w.bin", "v.bin"),
    ):
        file, as_other = tmp_path / part, tmp_path / other
        file.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            (path / "saved_model.pb").write_bytes(b"graph")
        else:
            save_external(path, part)
        file.write_bytes(b"weights")
        before = card_sha256(card_of(path))
        file.rename(as_other)
        assert card_sha256(card_of(path)) != before
        as_other.rename(file)
        assert card_sha256(card_of(path.rename(path.with_stem("n")))) == before


def test_names_of_modules_are_part_of_a_network_of_code(tmp_path: Path) -> None:
    package = tmp_path / "networks"
    package.mkdir()
    (package / "a.py").write_bytes(b"x = 1")
    card = replace(
        card_of(package),
        source=Source.ENTRY_POINT,
        entry="networks.a:make",
        import_folder=str(tmp_path),
    )
    before = card_sha256(card)
    (package / "a.py").rename(package / "b.py")
    assert card_sha256(card) != before
