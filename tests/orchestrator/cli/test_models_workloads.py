"""`models export --workload`: files of language models from the command line."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from wording import has

COMMAND = (sys.executable, "-m", "fleetrank")


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.thorough
@pytest.mark.export
def test_a_file_of_each_workload_is_exported_and_found_again(tmp_path: Path) -> None:
    assert run(tmp_path, "init", ".").returncode == 0
    workloads = ("--workload", "decode@4", "--workload", "prefill@3")
    export = ("models", "export", "stories260k", "--runtime", "torch", *workloads, "--json")
    done = run(tmp_path, *export, "--precision", "fp32", "--precision", "int8")
    assert done.returncode == 3
    assert has(done.stderr, "stories260k", "int8", "eager PyTorch")
    rows = json.loads(done.stdout)
    assert {row["precision"] for row in rows} == {"fp32"}
    assert [row["workload"] for row in rows] == ["decode@4", "prefill@3"]
    assert all(row["max_relative_error"] < 1e-5 for row in rows)
    found = run(tmp_path, *export)
    assert json.loads(found.stdout) == rows


@pytest.mark.slow
def test_a_workload_that_does_not_exist_is_bad_usage(tmp_path: Path) -> None:
    assert run(tmp_path, "init", ".").returncode == 0
    done = run(tmp_path, "models", "export", "stories260k", "--workload", "decode")
    assert done.returncode == 2
    assert has(done.stderr, "decode@512")


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "parts"),
    [("decode@513", ("512", "decode@513", "513")), ("encode@8", ("prefill", "encode@8"))],
)
def test_a_workload_that_the_model_does_not_answer_is_refused(
    tmp_path: Path, workload: str, parts: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "fleetrank.models.export", "stories260k", "pt2"]
    command += ["--out", "out", "--workload", workload]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert has(done.stderr, *parts)


def test_a_plan_counts_models_or_cells_that_are_skipped_for_one_reason(tmp_path: Path) -> None:
    assert run(tmp_path, "init", ".").returncode == 0
    text = """name: t
models: {models}
workloads: [prefill@64, prefill@128]
runtimes: [onnx, torch]
backends: {{onnx: cuda}}
devices: [local-cpu]
"""
    for models, shown in (
        ("[stories260k]", "stories260k (2 cells)"),
        ("[stories260k, stories15m]", "2 models"),
    ):
        (tmp_path / "sweeps/t.yaml").write_text(text.format(models=models))
        done = run(tmp_path, "sweep", "plan", "sweeps/t.yaml")
        assert f"skipped: {shown} on cpu" in done.stdout
        assert "no backend 'cuda'" in done.stdout
