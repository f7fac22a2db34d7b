from pathlib import Path

import pytest
from wording import has

from fleetrank.models.cards.card import Source
from fleetrank.models.cards.user_cards import load_user_card
from fleetrank.models.errors import CardError

GOOD = 'family = "mobile_cnn"\nsource = "file"\nentry = "nets/mine.onnx"\n'


def refused(tmp_path: Path, text: str) -> CardError:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(CardError) as caught:
        load_user_card(path)
    assert str(path) in caught.value.message
    assert caught.value.remedy
    return caught.value


def test_relative_file_starts_at_the_card(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    card = load_user_card(tmp_path / "mine.toml")
    assert card.source is Source.FILE
    assert card.entry == str(tmp_path.resolve() / "nets" / "mine.onnx")
    assert card.input_size is None
    assert card.accuracy_top1 is None


def test_file_of_a_format_that_nothing_runs_is_refused_with_those_that_do(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.replace(".onnx", ".pth"))
    assert "mine.pth" in error.message
    assert ".onnx, .pt2, .tflite, .pte" in error.remedy


def test_stated_macs_are_taken_and_counted_means_unknown_yet(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + "macs = 1000\n")
    assert load_user_card(path).macs == 1000
    path.write_text(GOOD + 'macs = "counted"\n')
    assert load_user_card(path).macs is None


def test_entry_point_is_imported_from_the_folder_above_cards(tmp_path: Path) -> None:
    folder = tmp_path / "cards"
    folder.mkdir()
    text = 'family = "hybrid"\nsource = "entry_point"\nentry = "nets.tiny:make"\n'
    (folder / "mine.toml").write_text(text)
    assert load_user_card(folder / "mine.toml").import_folder == str(tmp_path.resolve())


def test_misspelt_key_names_the_nearest(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD + "acuracy_top1 = 70.0\n")
    assert "'acuracy_top1'" in error.message
    assert has(error.remedy, "mean", "accuracy_top1")


def test_missing_key_is_named(tmp_path: Path) -> None:
    assert "'source' is missing" in refused(tmp_path, 'entry = "a.onnx"').message


def test_unknown_family_lists_what_there_is(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.replace("mobile_cnn", "mobil"))
    assert "standard_cnn" in error.message


def test_accuracy_without_a_source_is_refused(tmp_path: Path) -> None:
    assert "its source" in refused(tmp_path, GOOD + "accuracy_top1 = 70.0\n").message


@pytest.mark.parametrize("entry", ["nets.tiny", "nets/tiny.py:make", "nets:make()", ":make"])
def test_entry_point_must_be_module_and_function(tmp_path: Path, entry: str) -> None:
    text = f'family = "hybrid"\nsource = "entry_point"\nentry = "{entry}"\n'
    assert "package.module:function" in refused(tmp_path, text).message


@pytest.mark.parametrize("text", ["family = ", "\x00", "= 3"])
def test_text_that_is_not_toml_is_refused(tmp_path: Path, text: str) -> None:
    assert has(refused(tmp_path, text).remedy, "correct", "TOML", "place")


def test_name_cannot_reach_outside_a_folder(tmp_path: Path) -> None:
    assert "name" in refused(tmp_path, GOOD + 'name = "../up"\n').message


def test_a_card_without_a_family_is_of_no_known_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('source = "file"\nentry = "m.onnx"\n')
    assert load_user_card(tmp_path / "mine.toml").family == "other"


def test_a_precision_is_stated_for_files_only(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + 'precision = "int8"\n')
    assert load_user_card(path).precision == "int8"
    text = 'source = "timm"\nentry = "tinynet_a"\nprecision = "int8"\n'
    assert has(refused(tmp_path, text).message, "precision", "files", "sweep")
