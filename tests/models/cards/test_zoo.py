import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_onnx import save_external

from fleetrank.foundation.vocabulary import Family, Format, WeightsKind
from fleetrank.models.cards.card import ModelCard, Source, Weights, formats_of, weights_id
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import find_card, load_cards, load_language_zoo, load_zoo
from fleetrank.models.errors import CardError

OWN = 'family = "mobile_cnn"\nsource = "torchvision"\nentry = "shufflenet_v2_x1_0"\n'


def file_card(path: Path) -> ModelCard:
    return ModelCard(name="m", family=Family.HYBRID, source=Source.FILE, entry=str(path))


def test_zoo_holds_the_13_networks_of_the_study_over_all_families() -> None:
    zoo = load_zoo()
    by_family = Counter(card.family for card in zoo.values())
    assert by_family == {
        Family.STANDARD_CNN: 3,
        Family.MOBILE_CNN: 4,
        Family.EFFICIENT_CNN: 2,
        Family.TRANSFORMER: 2,
        Family.HYBRID: 2,
    }


def test_every_zoo_accuracy_has_a_source_and_an_exact_tag() -> None:
    for card in load_zoo().values():
        assert card.accuracy_top1 is not None
        assert card.accuracy_source
        assert card.weights_tag


def test_attention_is_declared_where_there_is_some() -> None:
    attentive = {name for name, card in load_zoo().items() if card.has_attention}
    assert attentive == {"levit_128s", "deit_tiny", "mobilevit_xxs"}


def test_user_card_joins_the_zoo_under_its_file_name(tmp_path: Path) -> None:
    (tmp_path / "shuffle.toml").write_text(OWN)
    cards = load_cards(tmp_path).good
    assert len(cards) == len(load_zoo()) + len(load_language_zoo()) + 1
    assert cards["shuffle"].input_size == 224


def test_missing_cards_folder_is_no_error(tmp_path: Path) -> None:
    assert load_cards(tmp_path / "cards").good == load_zoo() | load_language_zoo()


def test_user_card_cannot_take_a_name_of_the_zoo(tmp_path: Path) -> None:
    (tmp_path / "resnet18.toml").write_text(OWN)
    cards = load_cards(tmp_path)
    with pytest.raises(CardError, match=r"resnet18.*already.*exists"):
        cards.find("resnet18")
    assert cards.find("resnet50").name == "resnet50"


def test_a_bad_card_stops_only_what_names_it_and_all_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("no TOML")
    (tmp_path / "b.toml").write_text(OWN + "acuracy_top1 = 3\n")
    (tmp_path / "c.toml").write_text(OWN)
    cards = load_cards(tmp_path)
    assert cards.find("c").name == "c"
    assert cards.bad.keys() == {"a", "b"}
    cards.check(["c", "resnet18"])
    with pytest.raises(CardError, match=r"a\.toml.*b\.toml"):
        cards.check(["c", "a", "b"])


def test_unknown_model_gets_the_nearest_name() -> None:
    with pytest.raises(CardError) as caught:
        find_card(load_zoo(), "resnet81")
    assert "resnet81" in caught.value.message
    assert caught.value.remedy == "did you mean 'resnet18'?"


def test_user_file_has_the_one_format_of_its_runtime() -> None:
    assert formats_of(load_zoo()["resnet18"]) == tuple(Format)
    assert formats_of(file_card(Path("/a/b.onnx"))) == (Format.ONNX,)
    assert formats_of(file_card(Path("/a/b.pt2"))) == (Format.PT2,)
    assert formats_of(file_card(Path("/a/b.pte"))) == (Format.PTE,)
    for name in ("b.tflite", "b.keras", "saved_model_folder"):
        assert formats_of(file_card(Path("/a") / name)) == (Format.TFLITE,)


def test_identity_changes_with_any_field_of_a_card() -> None:
    card = load_zoo()["resnet18"]
    assert resolve(card).sha256 == resolve(replace(card)).sha256
    assert resolve(card).sha256 != resolve(replace(card, accuracy_top1=70.0)).sha256


def test_identity_of_a_file_is_its_bytes_and_not_its_place(tmp_path: Path) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    first.write_bytes(b"same")
    second.write_bytes(b"same")
    assert resolve(file_card(first)).sha256 == resolve(file_card(second)).sha256
    second.write_bytes(b"changed")
    assert resolve(file_card(first)).sha256 != resolve(file_card(second)).sha256


def test_identity_of_a_file_covers_its_external_data(tmp_path: Path) -> None:
    path, data = tmp_path / "a.onnx", tmp_path / "any.name"
    save_external(path, data.name)
    data.write_bytes(b"weights")
    before = resolve(file_card(path)).sha256
    data.write_bytes(b"others")
    assert resolve(file_card(path)).sha256 != before


def test_identity_of_a_missing_file_says_where_to_correct_it(tmp_path: Path) -> None:
    with pytest.raises(CardError, match=r"gone\.onnx"):
        resolve(file_card(tmp_path / "gone.onnx"))


def test_edited_entry_point_is_another_network(tmp_path: Path) -> None:
    package = tmp_path / "nets"
    package.mkdir()
    (package / "tiny.py").write_text("WIDTH = 8")
    card = ModelCard(
        name="m",
        family=Family.HYBRID,
        source=Source.ENTRY_POINT,
        entry="nets.tiny:make",
        import_folder=str(tmp_path),
    )
    before = resolve(card).sha256
    (package / "tiny.py").write_text("WIDTH = 16")
    assert resolve(card).sha256 != before


def test_identity_does_not_depend_on_where_the_workspace_lies(tmp_path: Path) -> None:
    shas = []
    for name in ("here", "there"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "nets.py").write_text("WIDTH = 8")
        card = ModelCard(
            name="m",
            family=Family.HYBRID,
            source=Source.ENTRY_POINT,
            entry="nets:make",
            import_folder=str(folder),
        )
        shas.append(resolve(card).sha256)
    assert shas[0] == shas[1]


def test_weights_are_named_by_what_they_are() -> None:
    card = load_zoo()["resnet18"]
    assert weights_id(card, Weights(seed=7)) == "seeded-7"
    pretrained = Weights(kind=WeightsKind.PRETRAINED)
    assert weights_id(card, pretrained) == "pretrained-IMAGENET1K_V1"
    checkpoint = Weights(kind=WeightsKind.CHECKPOINT, checkpoint_sha256="ab")
    assert weights_id(card, checkpoint) == "checkpoint-ab"
    assert weights_id(file_card(Path("x.onnx")), Weights()) == "embedded"


def test_file_changed_within_the_same_run_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"1234")
    os.utime(path, (1, 1))
    before = resolve(file_card(path)).sha256
    path.write_bytes(b"4321")
    assert resolve(file_card(path)).sha256 != before
