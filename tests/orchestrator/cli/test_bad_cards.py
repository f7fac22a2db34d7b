"""A card with an error is listed, and stops only what names it."""

import json
from pathlib import Path

import pytest
from tiny_onnx import save_tiny_onnx
from wording import has

from fleetrank.models.cards.zoo import load_language_zoo, load_zoo
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.cli.sweep_command import folded
from fleetrank.orchestrator.workspace.workspace import Workspace

SPEC = "name: t\nmodels: {models}\nruntimes: [onnx]\nrepeats: 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, model_file: Path) -> Path:
    assert run(["init", str(tmp_path / "w")]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "w")
    workspace = Workspace.find()
    for name, text in {
        "good": f'source = "file"\nentry = "{model_file}"\n',
        "misspelt": f'source = "file"\nentrie = "{model_file}"\n',
        "broken": "this is not TOML",
        "resnet18": f'source = "file"\nentry = "{model_file}"\n',
        "gone": 'source = "file"\nentry = "gone.onnx"\n',
    }.items():
        (workspace.cards / f"{name}.toml").write_text(text)
    return workspace.root


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    return save_tiny_onnx(tmp_path / "tiny.onnx")


def plan(folder: Path, models: str, *options: str) -> int:
    (folder / "sweeps/t.yaml").write_text(SPEC.format(models=models))
    return run(["sweep", "plan", "t", *options])


def test_a_listing_shows_every_card_and_every_error(folder: Path, capsys) -> None:
    assert run(["models", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out) if not row["error"]}
    assert rows.keys() == {*load_zoo(), *load_language_zoo(), "good", "gone"}
    assert run(["models", "list", "--json"]) == 0
    bad = {row["name"]: row["error"] for row in json.loads(capsys.readouterr().out) if row["error"]}
    assert bad.keys() == {"misspelt", "broken", "resnet18"}
    assert has(bad["misspelt"], "misspelt.toml", "'entrie'")
    assert has(bad["resnet18"], "resnet18.toml", "already exists")
    assert run(["models", "list"]) == 0
    out = capsys.readouterr().out
    for name in ("misspelt.toml", "broken.toml", "resnet18.toml"):
        assert out.count(name) == 1
    assert has(out, "mean 'entry'")


def test_what_names_no_bad_card_is_not_affected(folder: Path, capsys) -> None:
    assert run(["models", "show", "good"]) == 0
    assert plan(folder, "[good, resnet50]") == 0
    out = capsys.readouterr().out
    assert has(out, "good", "resnet50")
    assert "misspelt" not in out


def test_a_sweep_over_all_models_lists_bad_cards_as_skipped(folder: Path, capsys) -> None:
    assert plan(folder, "all") == 0
    out = capsys.readouterr().out
    for name in ("misspelt", "broken", "gone"):
        assert f"skipped: {name} on every device" in out
    assert has(out, "'entrie'", "gone.onnx")


def test_a_sweep_that_names_bad_cards_names_each_of_them(folder: Path, capsys) -> None:
    assert plan(folder, "[good, misspelt, broken, gone]") == 2
    err = capsys.readouterr().err
    assert has(err, "misspelt.toml", "broken.toml", "gone.onnx")


def test_a_name_that_two_cards_claim_is_refused(folder: Path, capsys) -> None:
    assert run(["models", "show", "resnet18"]) == 2
    assert "already exists" in capsys.readouterr().err


def test_a_file_in_no_requested_runtime_says_where_it_runs(folder: Path, capsys) -> None:
    assert run(["models", "export", "good", "--runtime", "tflite"]) == 4
    assert has(capsys.readouterr().err, "good", "runs in onnx only", "--runtime onnx")


def test_the_status_of_a_sweep_names_a_failed_export_once() -> None:
    cell = {"model": "m", "workload": None, "platform": "p", "repeat": 0}
    export = {**cell, "error": "export_failed", "message": "no", "remedy": None}
    crash = {**export, "error": "crashed"}
    rows = folded([export, {**export, "repeat": 1}, crash, {**crash, "repeat": 1}])
    assert [(row["error"], row["repeat"]) for row in rows] == [
        ("export_failed", None),
        ("crashed", 1),
        ("crashed", 2),
    ]
