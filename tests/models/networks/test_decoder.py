"""The built-in decoders and encoders of text."""

from dataclasses import replace

import pytest
import torch
from daily import daily
from language_shapes import ENCODERS, LLAMA, SHAPES

from fleetrank.foundation.vocabulary import Format
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.language import LanguageShape, language_inputs, language_outputs
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.models.export.quantize import give_own_head
from fleetrank.models.networks.decoder import Decoder
from fleetrank.models.networks.encoder import Encoder
from fleetrank.models.networks.weights import network_with_weights

pytestmark = pytest.mark.usefixtures("without_gradients")
DECODERS = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
LENGTH = 40
SMALLEST_NORMAL = torch.finfo(torch.float32).tiny


def empty_caches(shape: LanguageShape, batch: int, slots: int) -> list[torch.Tensor]:
    size = (batch, shape.kv_heads, slots, shape.head_size)
    return [torch.zeros(size) for _ in range(2 * shape.layers)]


@DECODERS
def test_a_decode_of_32_tokens_equals_one_full_forward(shape: LanguageShape) -> None:
    decoder = Decoder(shape).eval()
    tokens = torch.randint(shape.vocabulary, (2, LENGTH))
    caches = empty_caches(shape, 2, LENGTH)
    logits, *caches = decoder(tokens[:, :8], torch.arange(8), *caches)
    for place in range(8, LENGTH):
        logits, *caches = decoder(tokens[:, place : place + 1], torch.tensor([place]), *caches)
        whole = empty_caches(shape, 2, place + 1)
        wanted, *whole = decoder(tokens[:, : place + 1], torch.arange(place + 1), *whole)
        assert float((logits - wanted).abs().max() / wanted.abs().max()) <= 1e-4
    for found, one in zip(caches, whole, strict=True):
        torch.testing.assert_close(found, one, rtol=1e-4, atol=1e-5)


@DECODERS
def test_a_token_sees_no_later_slot_and_every_earlier_one(shape: LanguageShape) -> None:
    decoder = Decoder(shape).eval()
    token, place = torch.tensor([[5]]), torch.tensor([6])
    caches = [torch.randn_like(cache) for cache in empty_caches(shape, 1, 12)]
    before, *written = decoder(token, place, *caches)
    for slot, is_seen in ((0, True), (5, True), (6, False), (7, False), (11, False)):
        changed = [cache.clone() for cache in caches]
        for cache in changed:
            cache[:, :, slot] += 1.0
        after, *_ = decoder(token, place, *changed)
        assert torch.equal(before, after) is not is_seen, slot
    for old, new in zip(caches, written, strict=True):
        assert torch.equal(old[:, :, :6], new[:, :, :6])
        assert not torch.equal(old[:, :, 6], new[:, :, 6])
        assert torch.equal(old[:, :, 7:], new[:, :, 7:])


@DECODERS
def test_sequences_of_a_batch_do_not_mix(shape: LanguageShape) -> None:
    decoder = Decoder(shape).eval()
    tokens = torch.randint(shape.vocabulary, (3, 9))
    together = decoder(tokens, torch.arange(9), *empty_caches(shape, 3, 9))
    for row in range(3):
        alone = decoder(tokens[row : row + 1], torch.arange(9), *empty_caches(shape, 1, 9))
        for found, wanted in zip(together, alone, strict=True):
            torch.testing.assert_close(found[row : row + 1], wanted, rtol=1e-4, atol=1e-5)


@DECODERS
def test_outputs_are_those_that_the_card_names(shape: LanguageShape) -> None:
    inputs, names = language_inputs(shape), language_outputs(shape, language_inputs(shape))
    outputs = Decoder(shape)(
        torch.zeros(1, 3, dtype=torch.int64), torch.arange(3), *empty_caches(shape, 1, 3)
    )
    assert len(outputs) == len(names)
    assert names[0] == "logits"
    assert outputs[0].shape == (1, shape.vocabulary)
    states = [one.state for one in inputs if one.state is not None]
    assert list(names[1:]) == states
    assert [one.name for one in inputs[2:4]] == ["keys_0", "values_0"]
    assert states[:2] == ["next_keys_0", "next_values_0"]


@pytest.mark.parametrize("shape", [*SHAPES.values(), *ENCODERS.values()], ids=[*SHAPES, *ENCODERS])
def test_seeded_outputs_neither_vanish_nor_overflow(shape: LanguageShape) -> None:
    def check(layer: torch.nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, torch.Tensor):
            sizes = output.abs()
            assert not ((sizes > 0) & (sizes < SMALLEST_NORMAL)).any(), layer
            assert 1e-2 <= float(output.std()) <= 1e2, layer

    network = (Encoder if shape.is_encoder else Decoder)(shape)
    for module in network.modules():
        module.register_forward_hook(check)
    tokens = torch.randint(shape.vocabulary, (2, LENGTH))
    if shape.is_encoder:
        assert network(tokens).shape == (2, LENGTH, shape.width)
        return
    logits, *_ = network(tokens, torch.arange(LENGTH), *empty_caches(shape, 2, LENGTH))
    assert 0.5 <= float(logits.std()) <= 2.0


@pytest.mark.parametrize("shape", ENCODERS.values(), ids=ENCODERS)
def test_every_token_of_an_encoder_sees_every_other(shape: LanguageShape) -> None:
    encoder = Encoder(shape).eval()
    tokens = torch.randint(shape.vocabulary, (1, 7))
    before = encoder(tokens)
    for place in range(7):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % shape.vocabulary
        assert (encoder(changed) != before).any(dim=-1).all(), place


def test_late_angles_keep_their_precision_in_fp16() -> None:
    decoder = Decoder(LLAMA)
    wanted = decoder.frequencies.clone()
    decoder.half()
    assert torch.equal(decoder.frequencies, wanted)


@pytest.mark.parametrize("text", ["prefill@16", "decode@16"])
def test_the_smallest_card_builds_without_trust_and_repeats_by_seed(text: str) -> None:
    model = resolve(load_language_zoo()["stories260k"])
    request = ExportRequest(
        model=model, weights=Weights(), format=Format.PT2, workload=Workload.parse(text), batch=2
    )
    outputs = []
    for seed in (0, 0, 1):
        network, examples = network_with_weights(
            model.card, Weights(seed=seed), is_trusted=False, inputs=request.inputs, batch=2
        )
        assert not network.training
        outputs.append(network(*examples.traced)[0])
    assert outputs[0].shape == (2, 512)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


@pytest.mark.thorough
@pytest.mark.parametrize("shape", daily(SHAPES.values(), SHAPES["llama"]), ids=SHAPES)
def test_one_graph_reads_a_prompt_and_makes_a_step_in_a_cache_of_any_size(
    shape: LanguageShape,
) -> None:
    decoder = Decoder(shape).eval().requires_grad_(requires_grad=False)
    traced = (torch.zeros(1, 4, dtype=torch.int64), torch.arange(4), *empty_caches(shape, 1, 16))
    length = torch.export.Dim("length", min=1, max=shape.context)
    slots = torch.export.Dim("slots", min=2, max=shape.context)
    sizes = ({1: length}, {0: length}, tuple({2: slots} for _ in traced[2:]))
    graph = torch.export.export(decoder, traced, dynamic_shapes=sizes).module()
    prompt = (
        torch.randint(shape.vocabulary, (1, 6)),
        torch.arange(6),
        *empty_caches(shape, 1, 9),
    )
    for arguments in (prompt, (torch.tensor([[3]]), torch.tensor([6]), *decoder(*prompt)[1:])):
        for found, wanted in zip(graph(*arguments), decoder(*arguments), strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.slow
def test_a_head_that_shares_its_table_gets_integers_of_its_own() -> None:
    torchao = pytest.importorskip("torchao.quantization")
    decoder = Decoder(replace(LLAMA, hidden=64)).eval()
    assert decoder.head is None
    table = decoder.embedding.tokens.weight
    stored = table.clone()
    give_own_head(decoder)
    torchao.quantize_(decoder, torchao.Int8DynamicActivationIntxWeightConfig())
    assert isinstance(decoder.head.weight, torchao.IntxUnpackedToInt8Tensor)
    assert decoder.embedding.tokens.weight is table
    assert torch.equal(table, stored)
