"""Cards that a person writes: what they mean, and how a wrong one is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from wording import has

from fleetrank.foundation.inputs import Values
from fleetrank.foundation.vocabulary import Format
from fleetrank.foundation.workload import Workload, WorkloadKind
from fleetrank.models.cards.card import ExportRequest, ModelCard, Source, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.inputs import ValueRule, axis_names, has_batch
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.cards.zoo import card_text, load_language_zoo, load_user_card
from fleetrank.models.errors import CardError

GOOD = 'family = "mobile_cnn"\nsource = "file"\nentry = "nets/mine.onnx"\n'
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
DECODER = """
source = "file"
entry = "m.onnx"
workloads = ["prefill", "decode"]

[[inputs]]
name = "ids"
shape = ["batch", "tokens"]
dtype = "int32"
values = { below = 50 }

[[inputs]]
name = "places"
shape = ["tokens"]
dtype = "int32"
values = { positions = "context" }

[[inputs]]
name = "past"
shape = ["batch", 2, "context", 4]
state = "present"
"""
NUMBERS = {
    "layers": 2, "width": 16, "heads": 4, "kv_heads": 2, "head_size": 4, "hidden": 24,
    "vocabulary": 50, "context": 32,
}  # fmt: skip
Load = Callable[[str], ModelCard]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Reads a card with this text."""

    def read(text: str) -> ModelCard:
        (tmp_path / "m.onnx").write_bytes(b"x")
        (tmp_path / "mine.toml").write_text(text)
        return load_user_card(tmp_path / "mine.toml")

    return read


def refused(load: Load, text: str, *words: str) -> CardError:
    """The error of a wrong card; message and remedy together have these words."""
    with pytest.raises(CardError) as caught:
        load(text)
    assert "mine.toml" in caught.value.message, text
    assert caught.value.remedy, text
    assert has(str(caught.value), *words), (text, str(caught.value))
    return caught.value


def by_numbers(**changed: object) -> str:
    lines = [f"{name} = {value}" for name, value in {**NUMBERS, **changed}.items()]
    return "\n".join(['source = "language"', "[language]", *lines])


def test_relative_file_starts_at_the_card(load: Load, tmp_path: Path) -> None:
    card = load(GOOD)
    assert card.source is Source.FILE
    assert card.entry == str(tmp_path.resolve() / "nets" / "mine.onnx")
    assert (card.input_size, card.accuracy_top1) == (None, None)
    assert load(GOOD + "macs = 1000\n").macs == 1000


def test_entry_point_is_imported_from_the_folder_above_cards(load: Load, tmp_path: Path) -> None:
    card = load('family = "hybrid"\nsource = "entry_point"\nentry = "nets.tiny:make"\n')
    assert card.import_folder == str(tmp_path.resolve().parent)
    assert card.input_size == 224


def test_a_wrong_card_is_refused_with_its_key_and_a_remedy(load: Load) -> None:
    point = 'family = "hybrid"\nsource = "entry_point"\nentry = "{}"\n'.format
    for text, *words in (
        (GOOD.replace(".onnx", ".pth"), "mine.pth", ".onnx, .pt2, .tflite, .pte"),
        (GOOD + "acuracy_top1 = 70.0\n", "'acuracy_top1'", "mean", "accuracy_top1"),
        (GOOD + 'import_folder = "/"\n', "unknown key 'import_folder'"),
        (GOOD + 'macs = "many"\n', "'macs'", "a whole number from 1"),
        ('entry = "a.onnx"', "'source': is required and missing"),
        (GOOD.replace("mobile_cnn", "mobil"), "'family'", "standard_cnn"),
        (GOOD + "accuracy_top1 = 70.0\n", "its source"),
        (GOOD + 'name = "../up"\n', "'name'"),
        *((point(entry), "package.module:function") for entry in (
            "nets.tiny", "nets/tiny.py:make", "nets:make()", ":make",
        )),
        *((text, "correct", "TOML", "place") for text in ("family = ", "\x00", "= 3")),
    ):  # fmt: skip
        refused(load, text, *words)


def test_a_precision_is_stated_for_files_only(load: Load) -> None:
    card = load('source = "file"\nentry = "m.onnx"\nprecision = "int8"\n')
    assert (card.precision, card.family) == ("int8", "other")
    text = 'source = "timm"\nentry = "tinynet_a"\nprecision = "int8"\n'
    refused(load, text, "precision", "files", "sweep")


def test_named_axes_get_their_sizes_and_the_batch(load: Load) -> None:
    card = load(HEAD + IDS + MASK)
    assert axis_names(card.inputs) == ("seq",)
    assert has_batch(card.inputs)
    ids, mask = resolve(card).sized_inputs((("seq", 128),), batch=4)
    assert (ids.shape, ids.dtype) == ((4, 128), "int64")
    assert ids.values == Values(low=0.0, high=30521.0)
    assert (mask.shape, mask.values) == ((4, 128, 2), Values(low=1.0, high=1.0))
    with pytest.raises(CardError, match="'seq'"):
        resolve(card).sized_inputs((), batch=1)


def test_inputs_are_part_of_the_identity_and_default_sizes_are_not(load: Load) -> None:
    card = load(HEAD + IDS)
    other = replace(card.inputs[0], values=ValueRule(below=10))
    assert resolve(replace(card, inputs=(other,))).sha256 != resolve(card).sha256
    assert resolve(replace(card, axes=(("seq", 99),))).sha256 == resolve(card).sha256
    assert resolve(replace(card, inputs=())).sha256 != resolve(card).sha256


def test_sizes_are_part_of_an_export(load: Load) -> None:
    plain = ExportRequest(model=resolve(load(HEAD + IDS)), weights=Weights(), format=Format.ONNX)
    keys = {replace(plain, axes=axes).key for axes in ((), (("seq", 1),), (("seq", 2),))}
    assert len(keys) == 3


def test_a_file_of_values_is_identified_by_its_content(load: Load, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.zeros((1, 16), dtype=np.int64))
    card = load(HEAD + IDS.replace("{ below = 30522 }", '{ file = "ids.npy" }'))
    first = resolve(card)
    (one,) = first.sized_inputs((("seq", 16),), batch=1)
    assert one.values.path == str(tmp_path.resolve() / "ids.npy")
    assert one.values.sha256 is not None
    np.save(tmp_path / "ids.npy", np.ones((1, 16), dtype=np.int64))
    assert resolve(card).sha256 != first.sha256
    (tmp_path / "ids.npy").unlink()
    with pytest.raises(CardError, match=r"ids\.npy"):
        resolve(card)


def test_a_card_that_is_printed_can_be_read_again(load: Load) -> None:
    for rule in ("{ below = 7 }", "{ range = [-1.0, 2.0] }", "{ constant = 1.0 }", '"normal"'):
        dtype = "int64" if "below" in rule else "float32"
        card = load(HEAD + IDS.replace("{ below = 30522 }", rule).replace("int64", dtype) + MASK)
        assert load(card_text(card)) == card
    for name, card in load_language_zoo().items():
        assert load(card_text(card)) == card, name
    assert load(card_text(load(DECODER))) == load(DECODER)


def test_a_wrong_input_names_its_place(load: Load) -> None:
    below = "{ below = 30522 }"
    for old, new, *words in (
        ("dtype", "dtyp", "inputs[0].dtyp", "'dtype'"),
        ('"int64"', '"string"', "inputs[0].dtype", "int64"),
        ("below", "belo", "inputs[0].values.belo", "'below'"),
        ("below = 30522", "below = 0", "inputs[0].values.below"),
        (below, "{ below = 9, constant = 1 }", "exactly", "one"),
        (below, "{ constant = 0.5 }", "whole", "0.5"),
        (below, "{ constant = -1e300 }", "inputs[0].values.constant"),
        (below, "{ range = [2, 1] }", "first", "above"),
        (below, '"normal"', "int64", "normal"),
        ('["batch", "seq"]', "[1048576, 1048576]", "elements"),
        ('"seq"]', '"Seq Length"]', "inputs[0].shape"),
        ('"seq"]', "0]", "inputs[0].shape"),
        ("{ seq = 16 }", "{ seq = 16, sq = 2 }", "'sq'"),
        ("{ seq = 16 }", "{ batch = 16 }", "batch"),
        ("{ seq = 16 }", "{ seq = -1 }", "axes.seq"),
        ('name = "ids"', 'name = "mask"', "same", "name"),
        ('source = "file"', 'source = "timm"', "inputs"),
    ):
        refused(load, (HEAD + IDS + MASK).replace(old, new, 1), *words)


def test_the_numbers_alone_make_a_card(load: Load) -> None:
    card = load(by_numbers())
    assert (card.name, card.source, card.entry) == ("mine", Source.LANGUAGE, "mine")
    assert card.language == LanguageShape(**NUMBERS)
    assert card.workloads == card.language.workloads
    assert len(card.inputs) == 2 + 2 * 2
    assert card.has_attention
    assert card.input_size is None
    assert resolve(card).sha256 != resolve(load(by_numbers(hidden=25))).sha256


def test_numbers_that_cannot_be_are_refused(load: Load) -> None:
    for name, value, *words in (
        ("layers", 0, "language.layers"),
        ("layers", 2.0, "language.layers"),
        ("width", -1, "language.width"),
        ("context", 10000000, "language.context"),
        ("vocabulary", "true", "language.vocabulary"),
        ("kv_heads", 3, "heads 4", "kv_heads 3"),
        ("head_size", 5, "rotary_share"),
        ("rotary_share", 0.2, "rotary_share"),
        ("rotary_share", 1.5, "language.rotary_share"),
        ("rotary_base", "nan", "language.rotary_base"),
        ("norm_epsilon", 0.0, "language.norm_epsilon"),
        ("norm", '"batch"', "language.norm"),
        ("bias", "true", "language.bias"),
        ("is_tied", '"no"', "language.is_tied"),
        ("is_encoder", "true", "encoder", "learned"),
        ("layerz", 2, "unknown key 'language.layerz'", "'layers'"),
    ):
        refused(load, by_numbers(**{name: value}), *words)
    refused(load, by_numbers().replace("heads = 4\n", ""), "language.heads", "missing")


def test_numbers_and_their_source_go_together(load: Load) -> None:
    for line in ("macs = 5", 'workloads = ["prefill"]', "input_size = 8", 'weights_tag = "x"',
                 "parameters = 5", 'precision = "fp32"'):  # fmt: skip
        refused(load, f"{line}\n{by_numbers()}", line.split(maxsplit=1)[0])
    refused(load, 'source = "language"', "[language]")
    refused(load, 'source = "language"\nlanguage = 3', "language")
    other = by_numbers().replace('"language"', '"timm"\nentry = "resnet18"', 1)
    refused(load, other, "[language]")


def test_a_decoder_file_states_its_cache_and_positions(load: Load) -> None:
    card = load(DECODER)
    assert card.workloads == (WorkloadKind.PREFILL, WorkloadKind.DECODE)
    assert axis_names(card.inputs, takes_tokens=True) == ()
    workload = Workload.parse("decode@16")
    ids, places, past = ExportRequest(
        model=resolve(card), weights=Weights(), format=Format.ONNX, workload=workload, batch=3
    ).inputs
    assert (ids.shape, ids.state) == ((3, 1), None)
    assert (places.shape, places.values) == ((1,), Values(counts_to=16))
    assert (past.shape, past.state) == ((3, 2, 16, 4), "present")
    assert resolve(replace(card, workloads=())).sha256 != resolve(card).sha256


def test_a_decoder_file_with_a_card_that_does_not_fit_is_refused(load: Load) -> None:
    both, places = '"prefill", "decode"', 'positions = "context"'
    for old, new, *words in (
        (f"workloads = [{both}]\n", "", "state", "workloads"),
        (both, '"prefill", "encode"', "decoder", "encoder"),
        (both, '"encode"', "encoder", "state"),
        (both, '"prefill", "prefill"', "once"),
        (both, '"image"', "workloads"),
        (both, '"prefill@8"', "workloads"),
        ('state = "present"\n', "", "cache"),
        ('state = "present"\n', 'state = ""\n', "inputs[2].state"),
        ('"context", 4', "8, 4", "context"),
        (places, 'positions = "tokens"', "inputs[1].values.positions"),
        (places, f"{places}, below = 3", "exactly one"),
        ('"decode"]\n', '"decode"]\naxes = { context = 8 }\n', "context", "workload"),
        ('dtype = "int32"\nvalues = { pos', 'dtype = "float32"\nvalues = { pos',
         "positions", "float32"),
    ):  # fmt: skip
        assert old in DECODER
        refused(load, DECODER.replace(old, new, 1), *words)
    without = DECODER.replace('"batch", "tokens"', '"batch", 1').replace('["tokens"]', "[1]")
    refused(load, without, "tokens")
    second = DECODER[DECODER.rindex("[[inputs]]") :].replace('"past"', '"past2"')
    refused(load, DECODER + second, "same state")
