"""Perplexity of a network with a memory, segment by segment, through an exported file."""

import math
from pathlib import Path

import pytest
import torch
from stored_evaluations import MODEL, evaluated
from torch import nn

from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.networks.build import build_network

pytestmark = pytest.mark.slow


def _hmt(folder: Path, text: Path, segment: str, *words: str) -> dict[str, object]:
    found = evaluated(
        folder, "ppl", "--model", MODEL, "--text", str(text), "--tokenizer", "bytes",
        "--runtime", "onnx", "--strategy", "hmt", "--segment", segment,
        *(words or ("--seeded",)),
    )  # fmt: skip
    return found["ppl perplexity"]


def _remembering(folder: Path) -> Path:
    """Weights with which each token is likely to be one that was seen, alone or in a memory.

    Only attention of the first block does something: it adds the mean of all places up to its own,
    which the head compares with the token table. The mean of a segment becomes its memory, and
    memories are mixed in equal shares.
    """
    card = load_cards(folder / "cards").find(MODEL)
    built = build_network(
        card, is_pretrained=False, is_trusted=False, workload=Workload.parse("score@8+k0+n2")
    )
    state = {
        name: torch.full_like(value, float("norm" in name))
        for name, value in built.network.state_dict().items()
    }
    # Keys and values of two heads are shared, so that half of a vector passes.
    half, size = 32, 8
    state["embedding.tokens.weight"][:, :half] = torch.randn(
        512, half, generator=torch.Generator().manual_seed(0)
    )
    for place in range(half):
        state["blocks.0.attention.values.weight"][place, place] = 1.0
        shared = place // size * 2 * size + place % size
        state["blocks.0.attention.output.weight"][place, shared] = 4.0
    torch.save(state, folder / "remembering.pt")
    return folder / "remembering.pt"


def _selecting(folder: Path) -> Path:
    """As `_remembering`, but the memory that is most like the summary has the largest share."""
    state = torch.load(_remembering(folder))
    random = torch.Generator().manual_seed(1)
    for name in ("queries", "keys"):
        weight = state[f"memory.{name}.weight"]
        state[f"memory.{name}.weight"] = torch.randn(weight.shape, generator=random)
    torch.save(state, folder / "selecting.pt")
    return folder / "selecting.pt"


def _plain_loop(folder: Path, text: str, segment: str) -> float:
    """The sum of -ln p of a text in PyTorch, segment after segment.

    A segment that is shorter than the part that is summarised is repeated up to that length.
    """
    workload = Workload.parse(f"segment@{segment}")
    card = load_cards(folder / "cards").find(MODEL)
    network = build_network(
        card, is_pretrained=False, is_trusted=False, workload=workload
    ).network  # fmt: skip
    network.load_state_dict(torch.load(_selecting(folder)))
    network.scores_every_token = True
    tokens = [0, *text.encode()]  # the tokenizer `bytes` starts a text with 0
    sensory = torch.zeros(1, workload.sensory, dtype=torch.int64)
    states, nll = (sensory, torch.zeros(1, workload.memories, card.language.table_width)), 0.0
    for start in range(0, len(text), workload.length):
        part = torch.tensor(tokens[start : start + workload.length + 1])
        read, targets = part[:-1], part[1:]
        if len(read) < workload.length // 2:
            read = read.repeat(workload.length)[: workload.length // 2]
        with torch.inference_mode():
            logits, *states = network(read[None], *states)
        found = logits[0, : len(targets)]
        nll += float(nn.functional.cross_entropy(found, targets, reduction="sum"))
    return nll


# The first text has more segments than one process of the worker takes. The others end with a
# segment of more, and of less, than the half that is summarised.
@pytest.mark.thorough
@pytest.mark.parametrize("n_tokens", [992, 46, 43, 41])
def test_a_text_scores_as_in_a_plain_loop(folder: Path, n_tokens: int) -> None:
    text = ("The quick brown fox jumps over " * 32)[:n_tokens]
    (folder / "loop.txt").write_text(text)
    row = _hmt(folder, folder / "loop.txt", "8+k3+n2", "--checkpoint", str(_selecting(folder)))
    assert (row["n_tokens"], row["n_bytes"]) == (n_tokens, n_tokens)
    assert row["n_windows"] == math.ceil(n_tokens / 8)
    assert row["nll_nats"] == pytest.approx(_plain_loop(folder, text, "8+k3+n2"), rel=1e-5)
