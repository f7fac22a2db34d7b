"""Formulas of cost against PyTorch's counter, the built networks and published figures."""

from dataclasses import replace

import pytest
import torch
from daily import daily
from language_shapes import ENCODERS, SHAPES
from wording import has

from fleetrank.foundation.vocabulary import Family, FlopsMethod
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.card import Cost, ModelCard, Source
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.models.networks.build import build_network
from fleetrank.models.networks.cost import count_cost, stated_cost
from fleetrank.models.networks.decoder import Decoder
from fleetrank.models.networks.encoder import Encoder
from fleetrank.models.networks.language_cost import (
    Call,
    call_cost,
    calls_of,
    parameter_count,
    why_too_large,
)

pytestmark = pytest.mark.usefixtures("one_thread")
ALL = {**SHAPES, **ENCODERS}
ZOO = {name: card.language for name, card in load_language_zoo().items() if card.language}
CALLS = (Call(tokens=7, slots=7), Call(tokens=1, slots=11), Call(tokens=5, slots=13))
SMOLLM, STORIES = ZOO["smollm-135m"], ZOO["stories15m"]
DECODE = Workload.parse("decode@1024")


def test_integers_are_weights_of_products_and_a_copy_of_a_tied_head() -> None:
    plain = call_cost(STORIES, *calls_of(DECODE))
    halved = call_cost(STORIES, *calls_of(DECODE), matrix_bytes=2)
    head = STORIES.vocabulary * STORIES.table_width
    in_blocks = (plain.bytes_moved - halved.bytes_moved) // 2 - head
    assert STORIES.is_tied
    assert halved.weight_bytes == plain.weight_bytes - 2 * in_blocks + 2 * head
    own_head = replace(STORIES, is_tied=False)
    saved = (
        call_cost(own_head, *calls_of(DECODE)).weight_bytes
        - call_cost(own_head, *calls_of(DECODE), matrix_bytes=2).weight_bytes
    )
    assert saved == 2 * (in_blocks + head)


def arguments(shape: LanguageShape, call: Call, batch: int) -> tuple[torch.Tensor, ...]:
    tokens = torch.zeros(batch, call.tokens, dtype=torch.int64)
    if shape.is_encoder:
        return (tokens,)
    size = (batch, shape.kv_heads, call.slots, shape.head_size)
    caches = [torch.zeros(size) for _ in range(2 * shape.layers)]
    return (tokens, torch.arange(call.tokens), *caches)


@pytest.mark.parametrize("batch", daily([1, 3], 3))
@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("shape", ALL.values(), ids=ALL)
def test_the_formula_equals_the_counter(shape: LanguageShape, call: Call, batch: int) -> None:
    call = replace(call, slots=call.tokens) if shape.is_encoder else call
    network = (Encoder if shape.is_encoder else Decoder)(shape).eval()
    counted = count_cost(network, arguments(shape, call, batch), batch)
    assert call_cost(shape, call, batch).macs == counted.macs
    assert parameter_count(shape) == counted.parameters


@pytest.mark.parametrize("text", ["prefill@32", "decode@256", "generate@16+16"])
@pytest.mark.parametrize("name", daily(["stories260k", "stories15m"], "stories260k"))
def test_the_formula_equals_the_counter_on_decoders_of_the_zoo(name: str, text: str) -> None:
    check_on_the_zoo(name, text)


def test_the_formula_equals_the_counter_on_an_encoder_of_the_zoo() -> None:
    check_on_the_zoo("bert-tiny", "encode@64")


def check_on_the_zoo(name: str, text: str) -> None:
    network = built(name)
    for call in calls_of(Workload.parse(text)):
        counted = count_cost(network, arguments(ZOO[name], call, 1))
        assert call_cost(ZOO[name], call).macs == counted.macs


def built(name: str) -> torch.nn.Module:
    card = load_language_zoo()[name]
    return build_network(card, is_pretrained=False, is_trusted=False).network


@pytest.mark.parametrize("name", ZOO)
def test_the_number_of_parameters_is_that_of_the_network(name: str) -> None:
    with torch.device("meta"):
        network = built(name)
    assert parameter_count(ZOO[name]) == sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(
    ("shape", "call", "products"),
    [
        # Counted on an independent module of these shapes, without softmax and norms.
        (STORIES, Call(tokens=1, slots=256), 16_072_704),
        (STORIES, Call(tokens=32, slots=256), 228_630_528),
        (SMOLLM, Call(tokens=1, slots=1024), 169_869_312),
        (SMOLLM, Call(tokens=32, slots=1024), 4_558_159_872),
    ],
)
def test_products_are_those_of_an_independent_count(shape, call: Call, products: int) -> None:
    softmax = shape.layers * shape.heads * call.tokens * call.slots
    assert call_cost(shape, call).macs == round(products + 2.5 * softmax)


def test_bytes_of_a_step_are_those_of_a_sum_by_hand() -> None:
    cost = call_cost(SMOLLM, *calls_of(DECODE), batch=2)
    cache = 2 * 30 * 3 * 64 * 1024 * 4
    assert cost.weight_bytes == 4 * 134_515_008
    assert cost.state_bytes == 2 * cache
    norms = 61 * 576 * 4
    written = 2 * 30 * 3 * 64 * 4
    row = 576 * 4
    assert cost.bytes_moved == cost.weight_bytes - norms + 2 * (cache + written + row)
    assert call_cost(SMOLLM, *calls_of(DECODE), value_bytes=2).weight_bytes == 2 * 134_515_008


def test_an_encoder_has_no_cache() -> None:
    cost = call_cost(ZOO["bert-tiny"], Call(tokens=64, slots=64))
    assert cost.state_bytes == 0
    matrices = 2 * (4 * 128 * 128 + 2 * 128 * 512)
    assert cost.bytes_moved == 4 * (matrices + 64 * 128)


def test_generate_has_a_prompt_and_a_step_of_one_cache() -> None:
    assert calls_of(Workload.parse("generate@16+4")) == (
        Call(tokens=16, slots=20),
        Call(tokens=1, slots=20),
    )
    assert calls_of(Workload.parse("prefill@16")) == (Call(tokens=16, slots=16),)
    assert calls_of(Workload.parse("encode@16")) == (Call(tokens=16, slots=16),)
    assert calls_of(Workload.parse("image")) == ()


def test_a_cache_larger_than_memory_names_what_fits() -> None:
    gigabyte = 10**9
    assert why_too_large(SMOLLM, DECODE, 1, 4, gigabyte) is None
    reason = why_too_large(SMOLLM, DECODE, 64, 4, gigabyte)
    assert has(reason, "538.1 MB", "3,019.9 MB", "1,000.0 MB", "batch 9", "156 tokens")
    fits, not_yet = (why_too_large(SMOLLM, DECODE, batch, 4, gigabyte) for batch in (9, 10))
    assert fits is None
    assert not_yet is not None
    assert why_too_large(SMOLLM, Workload.parse("decode@156"), 64, 4, gigabyte) is None
    assert why_too_large(SMOLLM, Workload.parse("decode@157"), 64, 4, gigabyte) is not None
    assert why_too_large(SMOLLM, Workload.parse("image"), 64, 4, 1) is None


def test_memories_larger_than_memory_name_what_fits() -> None:
    segment = Workload.parse("segment@64+k0+n100000")
    assert why_too_large(SMOLLM, segment, 1, 4, 10**9) is None
    reason = why_too_large(SMOLLM, segment, 4, 4, 10**9)
    assert has(reason, "memories of 921.6 MB", "batch 1")
    assert not has(reason, "tokens at batch")


def test_weights_larger_than_memory_are_the_reason() -> None:
    for shape, text in ((ZOO["bert-tiny"], "encode@8"), (SMOLLM, "decode@1024")):
        reason = why_too_large(shape, Workload.parse(text), 1, 4, 10**6)
        assert has(reason, "weights alone")
    short_of_one_token = 4 * 134_515_008 + 10
    reason = why_too_large(SMOLLM, DECODE, 1, 4, short_of_one_token)
    assert has(reason, "not even one token")


@pytest.mark.parametrize(
    ("text", "macs"), [("decode@64", 10), ("prefill@64", 640), ("generate@8+4", 10)]
)
def test_a_decoder_of_the_user_without_a_count_has_parameters_times_tokens(
    text: str, macs: int
) -> None:
    card = ModelCard(name="mine", family=Family.GPT, source=Source.FILE, entry="mine.tflite")
    card, workload = replace(card, parameters=10), Workload.parse(text)
    cost = stated_cost(card, None, workload)
    assert cost == Cost(macs=macs, parameters=10, method=FlopsMethod.PARAMETERS)
    counted = Cost(macs=99, parameters=10, method=FlopsMethod.COUNTED)
    assert stated_cost(card, counted, workload) == counted
    assert stated_cost(replace(card, parameters=None), None, workload).macs is None
    assert stated_cost(card, None, Workload.parse("encode@8")).macs is None
    assert stated_cost(card, None).macs is None
