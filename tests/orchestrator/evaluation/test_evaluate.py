"""Evaluations from the command to the stored rows, through real files and runtimes."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from waiting import wait_until
from wording import has

from fleetrank.analysis.stored.side.evaluations import EVALUATIONS
from fleetrank.analysis.stored.side.side_table import read_side
from fleetrank.foundation.inputs.workload import Workload
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.networks.build import build_network
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

LM_EVAL = Path(__file__).parents[2] / "data" / "lm_eval"
FIGURES = json.loads((LM_EVAL / "figures.json").read_text())
MODEL = "stories260k"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One workspace, so that each file is exported once."""
    folder = tmp_path_factory.mktemp("eval")
    Workspace.init(folder)
    return folder


def _eval(folder: Path, *words: str) -> dict[str, dict[str, object]]:
    """The stored rows of one call, by task and metric."""
    before = read_side(folder / "results", EVALUATIONS).height
    assert run(["eval", *words, "--workspace", str(folder)]) == 0
    rows = read_side(folder / "results", EVALUATIONS)[before:].to_dicts()
    return {f"{row['task']} {row['quality_metric']}": row for row in rows}


def _uniform_weights(folder: Path) -> Path:
    card = load_cards(folder / "cards").find(MODEL)
    network = build_network(card, is_pretrained=False, is_trusted=False).network
    zeros = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    torch.save(zeros, folder / "uniform.pt")
    return folder / "uniform.pt"


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = folder / "text.txt"
    text.write_text("Häuser und Bäume. " * 20)
    weights = _uniform_weights(folder)
    found = _eval(
        folder, "ppl", "--model", MODEL, "--text", str(text), "--tokenizer", "bytes",
        "--checkpoint", str(weights), "--runtime", "torch", "--window", "64",
    )  # fmt: skip
    n_bytes = text.stat().st_size
    assert found["ppl perplexity"]["quality"] == pytest.approx(512, rel=1e-9)
    assert found["ppl bits_per_byte"]["quality"] == pytest.approx(math.log2(512), rel=1e-9)
    row = found["ppl perplexity"]
    assert (row["n_tokens"], row["n_bytes"], row["flags"]) == (n_bytes, n_bytes, [])
    assert row["weights"] == "uniform.pt"
    assert row["nll_nats"] == pytest.approx(n_bytes * math.log(512))
    head, *lines = capfd.readouterr().out.splitlines()
    assert "quality  unit" in head
    (line,) = [line for line in lines if "token_top1" in line]
    assert "percent" in line


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_a_text_scores_as_in_the_harness(folder: Path, runtime: str) -> None:
    wanted = FIGURES["text"]
    found = _eval(
        folder, "ppl", "--model", MODEL, "--text", str(LM_EVAL / "text.jsonl"), "--seeded",
        "--tokenizer", "bytes", "--runtime", runtime, "--window", str(wanted["window"]),
    )  # fmt: skip
    row = found["ppl bits_per_byte"]
    assert row["quality"] == pytest.approx(wanted["bits_per_byte"], rel=1e-6)
    per_byte = math.exp(row["nll_nats"] / row["n_bytes"])
    assert per_byte == pytest.approx(wanted["byte_perplexity"], rel=1e-5)
    assert row["flags"] == ["seeded"]
    assert row["quality_low"] < row["quality"] < row["quality_high"]


def test_sliding_windows_read_more_and_score_as_much(folder: Path) -> None:
    given = (
        "ppl", "--model", MODEL, "--text", str(LM_EVAL / "text.jsonl"), "--seeded",
        "--tokenizer", "bytes", "--runtime", "torch", "--window", "64",
    )  # fmt: skip
    disjoint, sliding = _eval(folder, *given), _eval(folder, *given, "--strategy", "window")
    rows = [found["ppl perplexity"] for found in (disjoint, sliding)]
    assert rows[0]["n_tokens"] == rows[1]["n_tokens"]
    assert rows[0]["n_windows"] < rows[1]["n_windows"]
    assert [row["stride_tokens"] for row in rows] == [64, 32]
    assert rows[0]["quality"] != rows[1]["quality"]


def _hmt(folder: Path, text: Path, segment: str, *words: str) -> dict[str, object]:
    found = _eval(
        folder, "ppl", "--model", MODEL, "--text", str(text), "--tokenizer", "bytes",
        "--runtime", "onnx", "--strategy", "hmt", "--segment", segment,
        *(words or ("--seeded",)),
    )  # fmt: skip
    return found["ppl perplexity"]


def test_full_segments_without_a_memory_are_windows(folder: Path) -> None:
    text = folder / "full.jsonl"
    documents = ("0123456789abcdef" * 6, "The quick brown fox jumps over t" * 5)
    text.write_text("\n".join(json.dumps({"text": one}) for one in documents))
    plain = _eval(
        folder, "ppl", "--model", MODEL, "--text", str(text), "--seeded", "--tokenizer", "bytes",
        "--runtime", "onnx", "--window", "32",
    )["ppl perplexity"]  # fmt: skip
    row = _hmt(folder, text, "32+k0+n0")
    assert row["nll_nats"] == pytest.approx(plain["nll_nats"], rel=1e-6)
    same = ("n_tokens", "n_bytes", "n_windows", "n_documents", "window_tokens", "stride_tokens")
    assert {name: row[name] for name in same} == {name: plain[name] for name in same}
    assert row["strategy"] == "hmt+k0+n0"


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


def test_a_target_that_is_only_in_the_memory_needs_the_memory(folder: Path) -> None:
    weights = ("--checkpoint", str(_remembering(folder)))
    # The second segment reads b and a, and its last target is x or y.
    texts = {"seen": "xxxxxxxb" + "aaaaaaax", "unseen": "xxxxxxxb" + "aaaaaaay"}
    found = {}
    for name, text in texts.items():
        path = folder / f"{name}.txt"
        path.write_text(text)
        for segment in ("8+k0+n2", "8+k0+n0"):
            row = _hmt(folder, path, segment, *weights)
            assert (row["n_windows"], row["n_tokens"], row["flags"]) == (2, 16, [])
            found[name, segment] = row["nll_nats"]
    gain = {
        segment: found["unseen", segment] - found["seen", segment]
        for segment in ("8+k0+n2", "8+k0+n0")
    }
    assert gain["8+k0+n2"] > gain["8+k0+n0"] + 2
    assert found["seen", "8+k0+n2"] < found["seen", "8+k0+n0"] - 1


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
@pytest.mark.parametrize("n_tokens", [992, 46, 43, 41])
def test_a_text_scores_as_in_a_plain_loop(folder: Path, n_tokens: int) -> None:
    text = ("The quick brown fox jumps over " * 32)[:n_tokens]
    (folder / "loop.txt").write_text(text)
    row = _hmt(folder, folder / "loop.txt", "8+k3+n2", "--checkpoint", str(_selecting(folder)))
    assert (row["n_tokens"], row["n_bytes"]) == (n_tokens, n_tokens)
    assert row["n_windows"] == math.ceil(n_tokens / 8)
    assert row["nll_nats"] == pytest.approx(_plain_loop(folder, text, "8+k3+n2"), rel=1e-5)


def test_documents_do_not_share_a_memory(folder: Path) -> None:
    weights = ("--checkpoint", str(_remembering(folder)))
    texts = ("xxxxxxxb" + "aaaaaaax" + "cccc", "yyyyyyyb" + "aaaaaaax", "x")
    for name, documents in (("all", texts), *((str(n), [text]) for n, text in enumerate(texts))):
        lines = [json.dumps({"text": text}) for text in documents]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    total, *parts = (
        _hmt(folder, folder / f"{name}.jsonl", "8+k3+n2", *weights)["nll_nats"]
        for name in ("all", "0", "1", "2")
    )
    assert total == pytest.approx(sum(parts), rel=1e-6)


def test_a_checkpoint_without_a_memory_has_no_quality_with_one(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [
        "eval", "ppl", "--model", MODEL, "--text", str(LM_EVAL / "text.jsonl"), "--runtime", "onnx",
        "--tokenizer", "bytes", "--strategy", "hmt", "--segment", "8+k0+n2",
        "--checkpoint", str(_uniform_weights(folder)), "--workspace", str(folder),
    ]  # fmt: skip
    assert run(words) != 0
    assert "memory.queries.weight" in capfd.readouterr().err


def test_choices_are_those_of_the_harness(folder: Path) -> None:
    wanted = FIGURES["choices"]
    files = [word for task in wanted["tasks"] for word in (f"--{task}", f"{LM_EVAL}/{task}.jsonl")]
    found = _eval(
        folder, "smallbench", "--model", MODEL, "--tokenizer", "bytes", "--seeded", *files,
        "--runtime", "torch", "--window", str(wanted["window"]),
    )  # fmt: skip
    for task, metrics in wanted["tasks"].items():
        for name, value in metrics.items():
            assert found[f"{task} {name}"]["quality"] == pytest.approx(100 * value)
        total = sum(map(sum, wanted["log_probabilities"][task]))
        assert -found[f"{task} acc"]["nll_nats"] == pytest.approx(total, rel=1e-6)
    whole = found["smallbench acc"]
    mean = sum(metrics["acc"] for metrics in wanted["tasks"].values()) / 4
    assert whole["quality"] == pytest.approx(100 * mean)
    assert whole["n_items"] == 96


@pytest.fixture(scope="module")
def digits(folder: Path) -> Path:
    """Images of digits that training has not seen, and a network trained here."""
    data = load_digits()
    images = torch.from_numpy(data.images[:, None] / 16).float()
    labels = torch.from_numpy(data.target)
    is_seen = torch.arange(len(labels)) % 3 > 0
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(40):
        loss = nn.functional.cross_entropy(network(images[is_seen]), labels[is_seen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.save(network.state_dict(), folder / "digits.pt")
    (folder / "digits_network.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Sequential(nn.Conv2d(1, 8, 3, "
        "padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))\n"
    )
    (folder / "cards" / "digits.toml").write_text(
        'name = "digits"\nfamily = "standard_cnn"\nentry = "digits_network:make"\n'
        'source = "entry_point"\naccuracy_top1 = 98.9\naccuracy_source = "a table"\n'
        '[[inputs]]\nname = "image"\nshape = ["batch", 1, 8, 8]\ndtype = "float32"\n'
    )
    for number in torch.nonzero(~is_seen)[:, 0].tolist():
        place = folder / "digits" / str(data.target[number])
        place.mkdir(parents=True, exist_ok=True)
        levels = np.round(data.images[number] * 255 / 16).astype(np.uint8)
        Image.fromarray(levels).save(place / f"{number:04d}.png")
    with torch.inference_mode():
        right = network(images[~is_seen]).argmax(1) == labels[~is_seen]
    (folder / "right.txt").write_text(str(100 * float(right.float().mean())))
    return folder / "digits"


def _images(folder: Path, digits: Path, *words: str) -> dict[str, dict[str, object]]:
    return _eval(
        folder, "images", "--model", "digits", "--data", str(digits), "--trust", "--crop", "1",
        "--checkpoint", str(folder / "digits.pt"), "--mean", "0", "--std", "1", *words,
    )  # fmt: skip


def test_three_runtimes_have_the_accuracy_of_the_trained_network(
    folder: Path, digits: Path
) -> None:
    wanted = float((folder / "right.txt").read_text())
    assert wanted > 90
    for runtime in ("torch", "onnx", "tflite"):
        found = _images(folder, digits, "--runtime", runtime)
        top1, top5 = found["images top1"], found["images top5"]
        assert top1["quality"] == pytest.approx(wanted, abs=1e-4)
        assert top5["quality"] >= top1["quality"]
        assert (top1["n_items"], top1["published"]) == (599, 98.9)
        differs = abs(wanted - 98.9) > 0.5
        assert top1["flags"] == (["accuracy_differs"] if differs else [])
        assert top1["quality_low"] < wanted < top1["quality_high"]
    near = _images(folder, digits, "--runtime", "onnx", "--published", str(wanted), "--limit", "7")
    assert near["images top1"]["flags"][0] == "limited"


def test_classes_that_are_not_those_of_the_head_are_refused(
    folder: Path, digits: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two" / "a").mkdir(parents=True)
    (tmp_path / "two" / "b").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "two" / "a" / "x.png")
    words = [
        "eval", "images", "--model", "digits", "--data", str(tmp_path / "two"), "--trust",
        "--checkpoint", str(folder / "digits.pt"), "--runtime", "onnx",
        "--workspace", str(folder),
    ]  # fmt: skip
    assert run(words) == 2
    error = capfd.readouterr().err
    assert "2 classes" in error
    assert "--classes" in error


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"--seeded": None}, "no trained weights"),
        ({"--window": "600"}, "context of 512"),
        ({"--model": "bert-tiny"}, "not a decoder"),
        ({"--text": "missing.txt"}, "cannot be read"),
        ({"--stride": "65"}, "stride 65"),
        ({"--strategy": "hmm"}, "no strategy 'hmm'"),
        ({"--strategy": "hmt"}, "--segment 64"),
        ({"--strategy": "hmt", "--segment": "64"}, "without a window"),
        ({"--strategy": "hmt", "--segment": "500", "--window": None}, "needs 534"),
        ({"--strategy": "hmt", "--segment": "x", "--window": None}, "64+k8+n16"),
        ({"--segment": "64"}, "has no segments"),
        ({"--device": "phone"}, "unknown device"),
        ({"--device": "fake"}, "returns no outputs"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_any_work(
    folder: Path, changes: dict[str, str | None], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "devices" / "fake.yaml").write_text("name: fake\nkind: simulated\n")
    given: dict[str, str | None] = {
        "--model": MODEL, "--text": str(LM_EVAL / "text.jsonl"), "--tokenizer": "bytes",
        "--runtime": "torch", "--window": "64", "--seeded": "",
    }  # fmt: skip
    given |= changes
    words = [
        word for name, value in given.items() if value is not None for word in (name, value) if word
    ]
    n_before = read_side(folder / "results", EVALUATIONS).height
    assert run(["eval", "ppl", *words, "--workspace", str(folder)]) == 2
    assert said in capfd.readouterr().err
    assert read_side(folder / "results", EVALUATIONS).height == n_before


def _parts(folder: Path) -> set[Path]:
    return set((folder / "results" / "unfinished").glob("*.jsonl"))


def _has_scored(paths: set[Path]) -> bool:
    """Whether a whole line of scores is on the disk."""
    return any(path.read_bytes().count(b"\n") > 1 for path in paths)


@pytest.mark.parametrize(
    "reading", [("--window", "64"), ("--strategy", "hmt", "--segment", "64+k8+n4")]
)
def test_a_killed_evaluation_goes_on(folder: Path, reading: tuple[str, ...]) -> None:
    text = folder / f"long{len(reading)}.txt"
    text.write_text("words and more words, " * 1500)
    command = [
        sys.executable, "-m", "fleetrank", "eval", "ppl", "--model", MODEL, "--text", str(text),
        "--tokenizer", "bytes", "--seeded", "--runtime", "torch", *reading,
        "--workspace", str(folder),
    ]  # fmt: skip
    of_others = _parts(folder)
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE) as process:
        wait_until(lambda: _has_scored(_parts(folder) - of_others), "the first part", limit_s=300)
        os.killpg(process.pid, signal.SIGKILL)
    (path,) = _parts(folder) - of_others
    assert path.stat().st_size > 0
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert has(done.stderr, "scored", "earlier run")
    assert _parts(folder) == of_others
    subprocess.run(command, capture_output=True, check=True)
    row, uninterrupted = (
        read_side(folder / "results", EVALUATIONS)
        .filter(pl.col("data") == text.name, quality_metric="perplexity")
        .to_dicts()
    )
    assert row["n_tokens"] == text.stat().st_size
    assert row["nll_nats"] == pytest.approx(uninterrupted["nll_nats"], rel=1e-9)
