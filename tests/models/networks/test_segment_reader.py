"""Segments of a long text with a memory, against the published algorithm on the library's models.

`Published` follows the description of He et al. 2024 (arXiv 2405.06067) step by step, on decoders
of the library `transformers` that take vectors and give the last hidden states, as its authors do.
"""

import math
from pathlib import Path

import pytest
import torch
from daily import daily
from language_shapes import LLAMA, SHAPES
from published_models import KINDS, save_published

from fleetrank.foundation.vocabulary import WeightsKind
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.card import Weights
from fleetrank.models.cards.inputs import sized
from fleetrank.models.cards.language import (
    RECALL_WIDTH,
    LanguageShape,
    language_outputs,
    segment_inputs,
)
from fleetrank.models.errors import ExportError
from fleetrank.models.networks.cost import count_cost
from fleetrank.models.networks.decoder import Decoder
from fleetrank.models.networks.language_cost import call_cost, calls_of, parameter_count
from fleetrank.models.networks.segment_reader import SegmentReader
from fleetrank.models.networks.weights import load_checkpoint

pytestmark = pytest.mark.usefixtures("without_gradients")
DECODERS = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
WORKLOADS = pytest.mark.parametrize(
    "text", ["segment@8+k3+n4", "segment@7+k0+n4", "segment@8+k3+n0", "segment@1+k0+n1",
             "segment@5+k0+n0", "segment@3+k9+n2"]
)  # fmt: skip


class Published:
    """One text, segment by segment, on a model of the library."""

    def __init__(self, model: torch.nn.Module, memory: dict[str, torch.Tensor]) -> None:
        self.model, self.memory = model, memory
        self.embed = model.get_input_embeddings()

    def run(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(
            inputs_embeds=vectors, output_hidden_states=True,
            attention_mask=torch.ones(vectors.shape[:2]),
        )  # fmt: skip
        return found.logits, found.hidden_states[-1]

    def segment(
        self, tokens: torch.Tensor, before: torch.Tensor, memories: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of every token, and the new memory (batch, 1, width)."""
        batch, length = tokens.shape
        question = self.memory["memory.question"].expand(batch, 1, -1)
        half = self.embed(tokens[:, : max(1, length // 2)])
        summary = self.run(torch.cat([question, half, question], 1))[1][:, -1:]
        prompt = self.memory["memory.first"].expand(batch, 1, -1)
        if memories:
            known = torch.cat(memories, 1)
            query = summary @ self.memory["memory.queries.weight"].T
            keys = known @ self.memory["memory.keys.weight"].T
            scores = query @ keys.transpose(1, 2) / math.sqrt(4096)
            prompt = torch.softmax(scores, -1) @ known
        text = self.embed(torch.cat([before, tokens], 1))
        logits, hidden = self.run(torch.cat([prompt, text, prompt], 1))
        return logits[:, 1 + before.shape[1] : -1], hidden[:, -1:]


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return float((found - wanted).abs().max() / wanted.abs().max()) <= 1e-5


def reader(shape: LanguageShape, text: str) -> SegmentReader:
    torch.manual_seed(7)
    return SegmentReader(shape, Workload.parse(text)).eval()


@pytest.mark.parametrize("name", daily(SHAPES, "llama"))
def test_three_segments_are_read_as_in_the_paper(name: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    shape, (length, n_before, n_memories) = SHAPES[name], (8, 3, 2)
    model = save_published(KINDS[name], shape, tmp_path)
    workload = f"segment@{length}+k{n_before}+n{n_memories}"
    torch.manual_seed(1)
    own = {
        key: torch.randn_like(value)
        for key, value in reader(shape, workload).state_dict().items()
        if key.startswith("memory.")
    }
    save_file(own, tmp_path / "memory.safetensors")
    network = reader(shape, workload)
    weights = Weights(kind=WeightsKind.CHECKPOINT, checkpoint_path=str(tmp_path))
    load_checkpoint(network, weights, shape)
    network.scores_every_token = True

    published, known = Published(model, own), []
    before = torch.randint(3, shape.vocabulary, (2, n_before))
    states = (before, torch.zeros(2, n_memories, shape.table_width))
    for number in range(4):
        tokens = torch.randint(3, shape.vocabulary, (2, length))
        wanted, memory = published.segment(tokens, before, known[-n_memories:])
        logits, *states = network(tokens, *states)
        assert close(logits, wanted), number
        assert close(states[1][:, -1:], memory), number
        known.append(memory)
        before = tokens[:, -n_before:]
        assert torch.equal(states[0], before)
    assert close(states[1], torch.cat(known[-n_memories:], 1))


@DECODERS
def test_without_memory_a_segment_is_read_as_a_prompt(shape: LanguageShape) -> None:
    torch.manual_seed(7)
    decoder = Decoder(shape).eval()
    network = reader(shape, "segment@9+k0+n0")
    tokens = torch.randint(3, shape.vocabulary, (2, 9))
    size = (2, shape.kv_heads, 9, shape.head_size)
    caches = [torch.zeros(size) for _ in range(2 * shape.layers)]
    assert close(network(tokens)[0], decoder(tokens, torch.arange(9), *caches)[0])


@DECODERS
@WORKLOADS
def test_inputs_outputs_and_cost_are_those_of_the_formulas(shape: LanguageShape, text: str) -> None:
    asked, batch = Workload.parse(text), 2
    inputs = sized(segment_inputs(shape, asked), asked.axes, batch, {})
    network = reader(shape, text)
    arguments = [
        torch.zeros(one.shape, dtype=torch.int64)
        if one.dtype == "int64"
        else torch.randn(one.shape)
        for one in inputs
    ]
    outputs = dict(zip(language_outputs(shape, inputs), network(*arguments), strict=True))
    assert outputs["logits"].shape == (batch, shape.vocabulary)
    states = {one.state: one.shape for one in inputs if one.state is not None}
    assert {name: tuple(outputs[name].shape) for name in states} == states

    counted = count_cost(network, tuple(arguments), batch)
    (call,) = calls_of(asked)
    cost = call_cost(shape, call, batch)
    assert cost.macs == counted.macs
    assert cost.parameters == counted.parameters
    extra = 2 * shape.table_width * (RECALL_WIDTH + 1) if asked.memories else 0
    assert counted.parameters == parameter_count(shape) + extra
    sizes = [value.nbytes for value, one in zip(arguments, inputs, strict=True) if one.state]
    assert cost.state_bytes == sum(sizes)


def test_bytes_of_a_segment_are_those_of_a_sum_by_hand() -> None:
    (call,) = calls_of(Workload.parse("segment@8+k3+n4"))
    cost = call_cost(LLAMA, call, batch=2)
    blocks = 2 * (2 * 32 * 4 * 8 + 2 * 32 * 2 * 8 + 3 * 32 * 48)
    head, recall = 32 * 101, 2 * 32 * RECALL_WIDTH
    rows, memories = 2 * (4 + 3 + 8) * 32, 2 * 2 * 4 * 32
    assert cost.bytes_moved == 4 * (2 * blocks + head + recall + rows + memories)


@DECODERS
def test_weights_of_the_decoder_are_those_without_a_memory(shape: LanguageShape) -> None:
    torch.manual_seed(7)
    plain = Decoder(shape).state_dict()
    found = reader(shape, "segment@8").state_dict()
    assert all(torch.equal(found[name], value) for name, value in plain.items())
    assert {name.split(".")[0] for name in found.keys() - plain.keys()} == {"memory"}


def test_a_state_dict_with_a_memory_fits_with_and_without_one(tmp_path: Path) -> None:
    saved = reader(LLAMA, "segment@8")
    torch.save(saved.state_dict(), tmp_path / "net.pt")
    weights = Weights(kind=WeightsKind.CHECKPOINT, checkpoint_path=str(tmp_path / "net.pt"))
    for network in (SegmentReader(LLAMA, Workload.parse("segment@8")), Decoder(LLAMA),
                    SegmentReader(LLAMA, Workload.parse("segment@8+n0"))):  # fmt: skip
        load_checkpoint(network, weights, LLAMA)
        for name, value in network.state_dict().items():
            assert torch.equal(value, saved.state_dict()[name])


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_checkpoint_without_a_memory_is_refused_for_one(tmp_path: Path, is_folder: bool) -> None:
    if is_folder:
        save_published("llama", LLAMA, tmp_path)
    else:
        torch.save(Decoder(LLAMA).state_dict(), tmp_path / "net.pt")
    path = tmp_path if is_folder else tmp_path / "net.pt"
    weights = Weights(kind=WeightsKind.CHECKPOINT, checkpoint_path=str(path))
    with pytest.raises(ExportError) as caught:
        load_checkpoint(reader(LLAMA, "segment@8"), weights, LLAMA)
    assert "memory.question" in caught.value.message
    load_checkpoint(reader(LLAMA, "segment@8+n0"), weights, LLAMA)
