"""Inputs that a card states."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from wording import has

from fleetrank.foundation.inputs.model_input import Values
from fleetrank.models.cards.card import ExportRequest, ModelCard, Weights
from fleetrank.models.cards.card_text import card_text
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.inputs import axis_names, has_batch
from fleetrank.models.cards.user_cards import load_user_card
from fleetrank.models.errors import CardError

HEAD = 'source = "file"\nentry = "m.onnx"\naxes = { seq = 16 }\n'
IDS = """
[[inputs]]
name = "ids"
shape = ["batch", "seq"]
dtype = "int64"
values = { below = 30522 }
"""
MASK = """
[[inputs]]
name = "mask"
shape = ["batch", "seq", 2]
dtype = "bool"
values = { constant = 1 }
"""


def load(tmp_path: Path, text: str) -> ModelCard:
    (tmp_path / "m.onnx").write_bytes(b"x")
    (tmp_path / "mine.toml").write_text(text)
    return load_user_card(tmp_path / "mine.toml")


def test_named_axes_get_their_sizes_and_the_batch(tmp_path: Path) -> None:
    card = load(tmp_path, HEAD + IDS + MASK)
    assert axis_names(card.inputs) == ("seq",)
    assert has_batch(card.inputs)
    ids, mask = resolve(card).sized_inputs((("seq", 128),), batch=4)
    assert (ids.shape, ids.dtype) == ((4, 128), "int64")
    assert ids.values == Values(low=0.0, high=30521.0)
    assert (mask.shape, mask.values) == ((4, 128, 2), Values(low=1.0, high=1.0))
    with pytest.raises(CardError, match="'seq'"):
        resolve(card).sized_inputs((), batch=1)


def test_inputs_are_part_of_the_identity_and_default_sizes_are_not(tmp_path: Path) -> None:
    card = load(tmp_path, HEAD + IDS)
    other = replace(card.inputs[0], values=Values(low=0.0, high=9.0))
    assert resolve(replace(card, inputs=(other,))).sha256 != resolve(card).sha256
    assert resolve(replace(card, axes=(("seq", 99),))).sha256 == resolve(card).sha256
    assert resolve(replace(card, inputs=())).sha256 != resolve(card).sha256


def test_sizes_are_part_of_an_export(tmp_path: Path) -> None:
    model = resolve(load(tmp_path, HEAD + IDS))
    plain = ExportRequest(model=model, weights=Weights(), format="onnx")
    keys = {replace(plain, axes=axes).key for axes in ((), (("seq", 1),), (("seq", 2),))}
    assert len(keys) == 3


def test_a_file_of_values_is_identified_by_its_content(tmp_path: Path) -> None:
    text = HEAD + IDS.replace("{ below = 30522 }", '{ file = "ids.npy" }')
    np.save(tmp_path / "ids.npy", np.zeros((1, 16), dtype=np.int64))
    card = load(tmp_path, text)
    first = resolve(card)
    (one,) = first.sized_inputs((("seq", 16),), batch=1)
    assert one.values.path == str(tmp_path.resolve() / "ids.npy")
    assert one.values.sha256 is not None
    np.save(tmp_path / "ids.npy", np.ones((1, 16), dtype=np.int64))
    assert resolve(card).sha256 != first.sha256
    (tmp_path / "ids.npy").unlink()
    with pytest.raises(CardError, match=r"ids\.npy"):
        resolve(card)


def test_a_card_that_is_printed_can_be_read_again(tmp_path: Path) -> None:
    rules = ("{ below = 7 }", "{ range = [-1.0, 2.0] }", "{ constant = 1.0 }", '"normal"')
    for rule in rules:
        dtype = "int64" if "below" in rule else "float32"
        text = HEAD + IDS.replace("{ below = 30522 }", rule).replace("int64", dtype)
        card = load(tmp_path, text + MASK)
        (tmp_path / "again.toml").write_text(card_text(card))
        assert load_user_card(tmp_path / "again.toml") == card


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("dtype", "dtyp", ("inputs[0]", "'dtype'")),
        ('"int64"', '"string"', ("inputs[0]", "int64")),
        ("below", "belo", ("inputs[0]", "'below'")),
        ("below = 30522", "below = 0", ("inputs[0]",)),
        ("{ below = 30522 }", "{ below = 9, constant = 1 }", ("exactly", "one")),
        ("{ below = 30522 }", "{ constant = 0.5 }", ("whole", "0.5")),
        ("{ below = 30522 }", '"normal"', ("int64", "normal")),
        ('"seq"]', '"Seq Length"]', ("inputs[0]", "shape")),
        ('"seq"]', "0]", ("inputs[0]", "shape")),
        ("{ seq = 16 }", "{ seq = 16, sq = 2 }", ("'sq'",)),
        ("{ seq = 16 }", "{ batch = 16 }", ("batch",)),
        ('name = "ids"', 'name = "mask"', ("same", "name")),
        ('source = "file"', 'source = "timm"', ("inputs",)),
    ],
)
def test_a_wrong_input_names_its_place(
    tmp_path: Path, old: str, new: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(CardError) as caught:
        load(tmp_path, (HEAD + IDS + MASK).replace(old, new, 1))
    said = f"{caught.value.message} {caught.value.remedy}"
    assert "mine.toml" in said
    assert all(has(said, word) for word in words), said
