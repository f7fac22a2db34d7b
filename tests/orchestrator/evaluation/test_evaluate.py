"""Evaluations from the command to the stored rows, through real files and runtimes."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from stored_evaluations import LM_EVAL, MODEL, evaluated
from waiting import wait_until
from wording import has
from world import TEXT, World

from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.orchestrator.cli.main import run

pytestmark = pytest.mark.slow

FIGURES = json.loads((LM_EVAL / "figures.json").read_text())


def check_text(row: dict[str, object]) -> None:
    wanted = FIGURES["text"]
    assert row["quality"] == pytest.approx(wanted["bits_per_byte"], rel=1e-6)
    per_byte = math.exp(row["nll_nats"] / row["n_bytes"])
    assert per_byte == pytest.approx(wanted["byte_perplexity"], rel=1e-5)
    assert row["flags"] == ["seeded"]
    assert row["quality_low"] < row["quality"] < row["quality_high"]


def test_a_text_scores_as_in_the_harness(world: World) -> None:
    assert world.said["eval"]["code"] == 0, world.said["eval"]["err"]
    rows = read_side(world.root / "results", EVALUATIONS).filter(task="ppl")
    (row,) = rows.filter(quality_metric="bits_per_byte").to_dicts()
    check_text(row)


@pytest.mark.thorough
def test_choices_are_those_of_the_harness(folder: Path) -> None:
    wanted = FIGURES["choices"]
    files = [word for task in wanted["tasks"] for word in (f"--{task}", f"{LM_EVAL}/{task}.jsonl")]
    found = evaluated(
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"--seeded": None}, "no trained weights"),
        ({"--window": "600"}, "context of 512"),
        ({"--model": "bert-tiny"}, "not a decoder"),
        ({"--text": "missing.txt"}, "does not exist"),
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    "reading",
    [
        ("--window", TEXT[-1]),
        ("--strategy", "hmt", "--segment", "64+k8+n4"),
    ],
)
def test_a_killed_evaluation_goes_on(
    world: World, tmp_path: Path, reading: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """A process, because only one that is killed leaves half a file of scores."""
    folder = world.copy(tmp_path / "w").root
    text = folder / f"long{len(reading)}.txt"
    text.write_text("words and more words, " * 400)
    command = [
        sys.executable, "-m", "fleetrank", "eval", "ppl", "--model", MODEL, "--text", str(text),
        "--tokenizer", "bytes", "--seeded", "--runtime", "onnx", *reading,
        "--workspace", str(folder),
    ]  # fmt: skip
    of_others = _parts(folder)
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE) as process:
        wait_until(lambda: _has_scored(_parts(folder) - of_others), "the first part", limit_s=300)
        os.killpg(process.pid, signal.SIGKILL)
    (path,) = _parts(folder) - of_others
    assert path.stat().st_size > 0
    words = command[command.index("eval") :]
    assert run(words) == 0
    assert has(capfd.readouterr().err, "scored", "earlier run")
    assert _parts(folder) == of_others
    assert run(words) == 0
    row, uninterrupted = (
        read_side(folder / "results", EVALUATIONS)
        .filter(pl.col("data") == text.name, quality_metric="perplexity")
        .to_dicts()
    )
    assert row["n_tokens"] == text.stat().st_size
    assert row["nll_nats"] == pytest.approx(uninterrupted["nll_nats"], rel=1e-9)
