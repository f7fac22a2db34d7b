"""`results export --standard-metrics`: fields against the stored rows, with card and evaluation."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, write_results
from language_rows import DECODERS, MACHINES, Machine, write_language_results
from stored_part import write_part

from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.part_list import PARTS
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.cli.standard_metrics import architecture
from fleetrank.orchestrator.store.side import append_side

STORIES = load_language_zoo()["stories15m"]
SHA = resolve(STORIES).sha256


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks on one platform, and a decoder with the card of this version."""
    root = tmp_path_factory.mktemp("workspace")
    (root / "cluster.yaml").touch()
    results = root / "results"
    write_results(results, nets=NETS[:2], places=PLACES[:1])
    write_language_results(results, decoders=DECODERS[1:2], machines=MACHINES[:1])
    (path,) = results.glob(f"measurements/sweep_id=text*/{PARTS}")
    rows = pl.read_parquet(path, hive_partitioning=False)
    rows.with_columns(pl.lit(SHA).alias("card_sha256")).pipe(write_part, path)
    now = datetime(2026, 1, 2, tzinfo=UTC)
    metric = {
        "evaluation_id": "e", "model": "stories15m", "card_sha256": SHA, "precision": "fp32",
        "runtime": "onnx", "weights": "stories15M.pt", "task": "ppl", "data": "tales.txt",
        "started_utc": now, "finished_utc": now, "quality_metric": "perplexity", "quality": 4.5,
    }  # fmt: skip
    append_side(results, EVALUATIONS, [metric])
    return root


@pytest.fixture
def records(workspace: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert _run(workspace) == 0
    return {record["model"]: record for record in json.loads(capsys.readouterr().out)}


def _run(workspace: Path, *words: str) -> int:
    command = ("results", "export", "--standard-metrics", *words)
    return run([*command, "--workspace", str(workspace)])


def _stored(workspace: Path, model: str, workload: str | None = None) -> pl.DataFrame:
    """Valid rows of one model, read without any code of the tables."""
    files = sorted(workspace.glob("results/measurements/*/*.parquet"))
    rows = pl.concat([pl.read_parquet(path, hive_partitioning=False) for path in files])
    rows = rows.filter(pl.col("model") == model, pl.col("status") == "ok")
    return rows if workload is None else rows.filter(pl.col("workload") == workload)


def test_the_figures_of_an_image_model_are_those_of_its_rows(workspace, records) -> None:
    found, rows = records["resnet18"], _stored(workspace, "resnet18")
    median_ms = rows["latency_p50_ns"].median() / 1e6
    assert found["image_latency_ms"] == pytest.approx(median_ms, rel=1e-12)
    assert found["image_latency_low_ms"] < median_ms < found["image_latency_high_ms"]
    assert found["peak_memory_bytes"] == round(rows["peak_memory_bytes"].median())
    assert (found["n_repeats"], found["accuracy_top1"]) == (5, 69.758)
    assert (found["seed"], found["git_commit"]) == (rows["seed"][0], rows["git_commit"][0])
    assert [found[name] for name in ("seq128_latency_ms", "perplexity", "layers")] == [None] * 3


def test_a_text_model_has_its_architecture_and_its_perplexity(workspace, records) -> None:
    found = records["stories15m"]
    for workload, field in (
        ("prefill@128", "seq128_latency_ms"),
        ("prefill@512", "seq512_latency_ms"),
        ("decode@512", "step_latency_ms"),
    ):
        rows = _stored(workspace, "stories15m", workload)
        assert found[field] == pytest.approx(rows["latency_p50_ns"].median() / 1e6, rel=1e-12)
    assert (found["perplexity"], found["text"]) == (4.5, "tales.txt")
    assert found["quality_weights"] == "stories15M.pt"
    assert (found["layers"], found["width"], found["hidden"]) == (6, 288, 768)
    assert found["glu_expansion"] == pytest.approx(768 / 288)
    assert found["image_latency_ms"] is None


def test_ratios_of_published_shapes() -> None:
    # The token table of stories15M (llama2.c): 32,000 x 288 of 15,191,712 parameters.
    assert architecture(STORIES.language)["embedding_ratio"] == 32_000 * 288 / 15_191_712
    # GPT-2 (Radford et al. 2019) also has 1,024 learned positions; 124,439,808 parameters.
    gpt2 = architecture(load_language_zoo()["gpt2"].language)
    assert gpt2["embedding_parameters"] == (50_257 + 1_024) * 768
    assert gpt2["embedding_ratio"] == pytest.approx((50_257 + 1_024) * 768 / 124_439_808)


def test_a_folder_gets_a_record_and_a_page_of_each_run(workspace, records, tmp_path) -> None:
    out = tmp_path / "summaries"
    assert _run(workspace, "--out", str(out)) == 0
    assert len(list(out.glob("*.json"))) == len(list(out.glob("*-*.md"))) == 3
    (file,) = out.glob("stories15m-*.json")
    assert json.loads(file.read_text()) == records["stories15m"]
    page = file.with_suffix(".md").read_text()
    assert "| perplexity | 4.500 |" in page
    assert "| image\\_latency\\_ms | - |" in page
    comparison = (out / "summary.md").read_text()
    assert "=true" not in comparison
    assert all(model in comparison for model in ("resnet18", "stories15m"))
    before = sorted(path.name for path in out.iterdir())
    assert _run(workspace, "--out", str(out)) == 0
    assert sorted(path.name for path in out.iterdir()) == before


def test_only_simulated_rows_are_an_error_that_names_the_option(tmp_path, capsys) -> None:
    (tmp_path / "cluster.yaml").touch()
    machine = Machine(device="sim", tier="cpu", gflops=9.0, gbytes_s=9.0, origin="simulated")
    write_language_results(tmp_path / "results", decoders=DECODERS[1:2], machines=[machine])
    assert _run(tmp_path) != 0
    assert "--include-simulated" in capsys.readouterr().err


def test_a_file_in_place_of_the_folder_is_refused(workspace, tmp_path, capsys) -> None:
    file = tmp_path / "summary.json"
    file.write_text("mine")
    assert _run(workspace, "--out", str(file)) == 2
    assert "folder" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_only_the_named_sweep_counts(workspace, capsys) -> None:
    (sweep,) = {path.stem for path in (workspace / "results/sweeps").glob("text*.json")}
    assert _run(workspace, sweep) == 0
    assert [one["model"] for one in json.loads(capsys.readouterr().out)] == ["stories15m"]
