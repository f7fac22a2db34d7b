"""Cards of the user for decoders and encoders of text: by their numbers, and as files."""

from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest
from wording import has

from fleetrank.foundation.inputs.model_input import Values
from fleetrank.foundation.inputs.workload import Workload, WorkloadKind
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import ExportRequest, ModelCard, Source, Weights
from fleetrank.models.cards.card_text import card_text
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.inputs import axis_names
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.cards.user_cards import load_user_card
from fleetrank.models.cards.user_language import UserLanguage
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.models.errors import CardError

NUMBERS = {
    "layers": "2", "width": "16", "heads": "4", "kv_heads": "2", "head_size": "4",
    "hidden": "24", "vocabulary": "50", "context": "32",
}  # fmt: skip
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


def by_numbers(**changed: str) -> str:
    lines = [f"{name} = {value}" for name, value in {**NUMBERS, **changed}.items()]
    return "\n".join(['source = "language"', "[language]", *lines])


def load(tmp_path: Path, text: str) -> ModelCard:
    (tmp_path / "m.onnx").write_bytes(b"x")
    (tmp_path / "mine.toml").write_text(text)
    return load_user_card(tmp_path / "mine.toml")


def refusal(tmp_path: Path, text: str) -> CardError:
    with pytest.raises(CardError) as caught:
        load(tmp_path, text)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("name", load_language_zoo())
def test_a_card_of_the_zoo_is_read_as_it_is_printed(name: str, tmp_path: Path) -> None:
    card = load_language_zoo()[name]
    assert load(tmp_path, card_text(card)) == card


def test_the_numbers_alone_make_a_card(tmp_path: Path) -> None:
    card = load(tmp_path, by_numbers())
    assert (card.name, card.source, card.entry) == ("mine", Source.LANGUAGE, "mine")
    assert (
        card.language
        == UserLanguage.model_validate({name: int(value) for name, value in NUMBERS.items()}).shape
    )
    assert card.workloads == card.language.workloads
    assert len(card.inputs) == 2 + 2 * 2
    assert card.has_attention
    assert card.input_size is None
    other = load(tmp_path, by_numbers(hidden="25"))
    assert resolve(card).sha256 != resolve(other).sha256


def test_the_keys_and_defaults_are_those_of_the_shape() -> None:
    stated = {
        one.name: None if one.default is MISSING else one.default for one in fields(LanguageShape)
    }
    known = UserLanguage.model_fields
    assert {
        name: None if one.is_required() else one.default for name, one in known.items()
    } == stated


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"layers": "0"}, ("language.layers",)),
        ({"layers": "2.0"}, ("language.layers",)),
        ({"width": "-1"}, ("language.width",)),
        ({"context": "10000000"}, ("language.context",)),
        ({"vocabulary": "true"}, ("language.vocabulary",)),
        ({"kv_heads": "3"}, ("heads 4", "kv_heads 3")),
        ({"head_size": "5"}, ("rotary_share",)),
        ({"rotary_share": "0.2"}, ("rotary_share",)),
        ({"rotary_share": "1.5"}, ("language.rotary_share",)),
        ({"rotary_base": "nan"}, ("language.rotary_base",)),
        ({"norm_epsilon": "0.0"}, ("language.norm_epsilon",)),
        ({"norm": '"batch"'}, ("language.norm",)),
        ({"bias": "true"}, ("language.bias",)),
        ({"is_tied": '"no"'}, ("language.is_tied",)),
        ({"is_encoder": "true"}, ("encoder", "learned")),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    changed: dict[str, str], words: tuple[str, ...], tmp_path: Path
) -> None:
    assert has(refusal(tmp_path, by_numbers(**changed)).message, *words)


def test_a_misspelt_or_missing_number_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path, by_numbers(layerz="2"))
    assert has(error.message, "language.layerz")
    assert has(error.remedy, "layers")
    without = by_numbers().replace("heads = 4\n", "")
    assert has(refusal(tmp_path, without).message, "language.heads", "missing")


@pytest.mark.parametrize(
    "line",
    ["macs = 5", 'workloads = ["prefill"]', "input_size = 8", 'weights_tag = "x"', "parameters = 5",
     'precision = "fp32"'],
)  # fmt: skip
def test_keys_that_follow_from_the_numbers_are_refused(line: str, tmp_path: Path) -> None:
    assert line.split(maxsplit=1)[0] in refusal(tmp_path, f"{line}\n{by_numbers()}").message


def test_numbers_and_their_source_go_together(tmp_path: Path) -> None:
    assert "[language]" in refusal(tmp_path, 'source = "language"').message
    other = by_numbers().replace('"language"', '"timm"\nentry = "resnet18"', 1)
    assert "[language]" in refusal(tmp_path, other).message
    assert "language" in refusal(tmp_path, 'source = "language"\nlanguage = 3').message


def test_a_decoder_file_states_its_cache_and_positions(tmp_path: Path) -> None:
    card = load(tmp_path, DECODER)
    assert card.workloads == (WorkloadKind.PREFILL, WorkloadKind.DECODE)
    assert axis_names(card.inputs, takes_tokens=True) == ()
    request = ExportRequest(
        model=resolve(card),
        weights=Weights(),
        format=Format.ONNX,
        workload=Workload.parse("decode@16"),
        batch=3,
    )
    ids, places, past = request.inputs
    assert (ids.shape, ids.state) == ((3, 1), None)
    assert (places.shape, places.values) == ((1,), Values(counts_to=16))
    assert (past.shape, past.state) == ((3, 2, 16, 4), "present")
    assert load(tmp_path, card_text(card)) == card
    plain = replace(card, workloads=())
    assert resolve(plain).sha256 != resolve(card).sha256


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('workloads = ["prefill", "decode"]\n', "", ("state", "workloads")),
        ('"prefill", "decode"', '"prefill", "encode"', ("decoder", "encoder")),
        ('"prefill", "decode"', '"encode"', ("encoder", "state")),
        ('"prefill", "decode"', '"prefill", "prefill"', ("once",)),
        ('"prefill", "decode"', '"image"', ("workloads",)),
        ('"prefill", "decode"', '"prefill@8"', ("workloads",)),
        ('state = "present"\n', "", ("cache",)),
        ('state = "present"\n', 'state = ""\n', ("inputs[2].state",)),
        ('"context", 4', "8, 4", ("context",)),
        ('"batch", "tokens"', '"batch", 1', ("tokens",)),
        ('positions = "context"', 'positions = "tokens"', ("inputs[1].values.positions",)),
        ('positions = "context"', 'positions = "context", below = 3', ("exactly one",)),
        ('"decode"]\n', '"decode"]\naxes = { context = 8 }\n', ("context", "workload")),
        (
            'dtype = "int32"\nvalues = { pos',
            'dtype = "float32"\nvalues = { pos',
            ("positions", "float32"),
        ),
    ],
)
def test_a_decoder_file_with_a_card_that_does_not_fit_is_refused(
    old: str, new: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    text = DECODER.replace(old, new, 1)
    if '"batch", 1' in text:
        text = text.replace('["tokens"]', "[1]")
    assert text != DECODER
    assert has(refusal(tmp_path, text).message, *words)


def test_two_inputs_cannot_have_one_state(tmp_path: Path) -> None:
    second = DECODER[DECODER.rindex("[[inputs]]") :].replace('"past"', '"past2"')
    assert has(refusal(tmp_path, DECODER + second).message, "same state")
