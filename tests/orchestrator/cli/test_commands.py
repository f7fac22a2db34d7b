"""init, devices and results as a user calls them."""

import csv
import io
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from time import monotonic

import polars as pl
import pytest
from daily import daily
from full_disk import no_room_beyond
from wording import has

from fleetrank.analysis.stored.part_list import read_list
from fleetrank.analysis.stored.sweep_record import SweepRecord, SweepState
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.vocabulary import FlopsMethod, Format
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import Cost, ExportRequest, StagedExport, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_language_zoo, load_user_card, load_zoo
from fleetrank.orchestrator.cli.listing import print_table
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.store.parts import write_list
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.workspace.device_registry import local_cpu
from fleetrank.orchestrator.workspace.sweep_spec import load_spec
from fleetrank.orchestrator.workspace.workspace import Workspace

SWEEP_ID = "quick-20260102T030405-0a1b"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch, capsys) -> Workspace:
    assert run(["init", str(tmp_path / "w")]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "w")
    return Workspace.find()


@pytest.fixture
def stored(workspace: Workspace, new_row) -> ResultStore:
    store = ResultStore(workspace.results)
    store.create_sweep(
        SweepRecord(
            sweep_id=SWEEP_ID,
            state=SweepState.FINISHED,
            started_utc="2026-01-02T03:04:05+00:00",
        )
    )
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row())
        journal.append(new_row(repeat=1))
    store.publish(SWEEP_ID)
    return store


def _json(capsys) -> list[dict[str, object]]:
    return json.loads(capsys.readouterr().out)


def test_init_makes_a_workspace_with_a_valid_example(workspace) -> None:
    assert load_spec(workspace.sweeps / "example.yaml").name == "example"
    for name in ("README.md", ".gitignore", "devices", "cards"):
        assert (workspace.root / name).exists()


def test_init_keeps_what_is_there_and_refuses_a_workspace(tmp_path, capsys) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert run(["init", str(tmp_path)]) == 0
    assert (tmp_path / "README.md").read_text() == "mine"
    assert run(["init", str(tmp_path)]) == 2
    (tmp_path / "file").write_text("")
    assert run(["init", str(tmp_path / "file")]) == 2


def test_a_device_is_added_listed_shown_and_removed(workspace, capsys) -> None:
    add = ["devices", "add", "gpu-1", "--kind", "simulated", "--option", "tier=gpu"]
    assert run([*add, "--option", "noise=0.1", "--label", "rack=7"]) == 0
    capsys.readouterr()
    assert run(["devices", "list", "--json"]) == 0
    local, added = _json(capsys)
    assert local["aliases"] == ["local-cpu"]
    assert (local["state"], added["model"], added["state"]) == ("ready", "simulated", "ready")
    assert run(["devices", "list"]) == 0
    listed = capsys.readouterr()
    assert listed.out.split()[:6] == ["name", "aliases", "model", "state", "kind", "host"]
    assert "options" in listed.err
    assert added["options"] == {"tier": "gpu", "noise": 0.1}
    assert added["labels"] == {"rack": "7"}
    assert run(["devices", "check", "gpu-1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["tier"], shown["changes"]) == ("gpu", [])
    assert run(["devices", "check", "gpu-1"]) == 0
    assert run(add) == 2
    assert run(["devices", "remove", "gpu-1"]) == 0
    assert run(["devices", "remove", "gpu-1"]) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        ["--kind", "toaster"],
        ["--kind", "simulated", "--option", "tear=gpu"],
        ["--kind", "simulated", "--option", "tier"],
        ["--kind", "simulated", "--option", "=gpu"],
        ["--kind", "simulated", "--option", "tier=[1]"],
    ],
)
def test_a_device_that_cannot_be_is_not_written(workspace, wrong, capsys) -> None:
    assert run(["devices", "add", "x", *wrong]) == 2
    assert "->" in capsys.readouterr().err
    assert list(workspace.devices.iterdir()) == []


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this host has a driver")
def test_a_gpu_without_a_driver_is_not_written(workspace, capsys) -> None:
    assert run(["devices", "add", "gpu", "--kind", "cuda"]) != 0
    error = capsys.readouterr().err
    assert "driver" in error
    assert "not supported yet" in error
    assert list(workspace.devices.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a b", ""])
def test_a_devices_name_stays_in_its_folder(workspace, name) -> None:
    assert run(["devices", "add", name, "--kind", "simulated"]) == 2
    assert not (workspace.root / "x.yaml").exists()


def test_models_are_listed_with_those_of_the_workspace(
    workspace, tmp_path, monkeypatch, capsys
) -> None:
    card = 'family = "hybrid"\nsource = "timm"\nentry = "tinynet_a"\n'
    (workspace.cards / "mine.toml").write_text(card)
    assert run(["models", "list", "--json"]) == 0
    names = [row["name"] for row in _json(capsys)]
    assert names[-1] == "mine"
    assert len(names) == len(load_zoo()) + len(load_language_zoo()) + 1
    assert run(["models", "list", "--workspace", "/none"]) == 2
    monkeypatch.chdir(tmp_path)  # outside
    capsys.readouterr()
    assert run(["models", "list", "--json"]) == 0
    assert len(_json(capsys)) == len(names) - 1


def test_a_card_is_shown_as_a_user_may_write_it(workspace, tmp_path, capsys) -> None:
    for name, card in load_zoo().items():
        assert run(["models", "show", name]) == 0
        text = capsys.readouterr().out
        path = tmp_path / "card.toml"
        path.write_text(text)
        assert load_user_card(path) == card


def test_a_card_is_shown_as_json_and_a_misspelt_one_is_guessed(workspace, capsys) -> None:
    assert run(["models", "show", "resnet18", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["family"], shown["macs"]) == ("standard_cnn", None)
    assert len(shown["card_sha256"]) == 64
    assert run(["models", "show", "resnet81"]) == 2
    assert "resnet18" in capsys.readouterr().err


def test_a_sweep_whose_driver_died_is_stopped_in_every_list(stored, new_row, capsys) -> None:
    assert run(["results", "list", "--json"]) == 0
    assert [(row["sweep_id"], row["state"]) for row in _json(capsys)] == [(SWEEP_ID, "finished")]
    stored.update_record(SWEEP_ID, {"state": "running"})
    with stored.open_journal(SWEEP_ID) as journal:
        journal.append(new_row(repeat=2, status="failed", error_kind="crashed"))
        journal.append(new_row(repeat=2, attempt=1))
    assert run(["results", "list", "--json"]) == 0
    assert _json(capsys)[0]["state"] == "stopped"
    assert run(["sweep", "status"]) == 0
    out = capsys.readouterr().out
    assert "state     stopped" in out
    assert "1 failed try retried" in out
    with stored.lease(SWEEP_ID):
        assert run(["results", "list", "--json"]) == 0
    assert _json(capsys)[0]["state"] == "running"
    for wrong in ("nosuch", "../x"):
        assert run(["sweep", "status", wrong]) == 2
        assert "`fleetrank results list`" in capsys.readouterr().err


def test_results_are_exported_as_csv_json_and_parquet(stored, tmp_path, capsys) -> None:
    assert run(["results", "export"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["repeat"] for row in rows] == ["0", "1"]
    assert rows[0]["samples_ns"] == "10;20;30;40"
    assert run(["results", "export", SWEEP_ID, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[1])["samples_ns"] == [10, 20, 30, 40]
    out = tmp_path / "out.parquet"
    assert run(["results", "export", "--format", "parquet", "--out", str(out)]) == 0
    assert pl.read_parquet(out)["samples_ns"].to_list() == [[10, 20, 30, 40]] * 2
    assert run(["results", "export", "--format", "parquet"]) == 2


def test_without_results_there_is_nothing_to_do(workspace) -> None:
    assert run(["results", "export"]) == 4
    assert run(["results", "verify"]) == 4
    assert run(["results", "list"]) == 0
    ResultStore(workspace.results).create_sweep(SweepRecord(sweep_id=SWEEP_ID))
    assert run(["results", "export"]) == 4
    assert run(["results", "verify", "no-such-sweep"]) == 2


def test_a_page_without_its_library_has_nothing_to_do_it_with(
    workspace, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("fleetrank.orchestrator.extras.is_installed", lambda module: False)
    assert run(["report", "build"]) == 4
    assert "fleetrank[report]" in capsys.readouterr().err


def test_a_table_lines_up_and_shows_no_control_characters(capsys) -> None:
    rows = [{"name": "a\x1b[31m\nb", "n": None}, {"name": "long name", "n": [1, True]}]
    print_table(rows, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "name                n",
        "a\\u001b[31m\\u000ab  -",
        "long name           1, yes",
    ]
    print_table([], as_json=False)
    assert capsys.readouterr().out == "(none)\n"
    print_table(rows, as_json=True)
    assert json.loads(capsys.readouterr().out) == rows


def _export(workspace: Workspace, name: str) -> Path:
    """Puts a file into the cache as an export would."""
    cache = ArtifactCache(workspace.artifacts)
    request = ExportRequest(model=resolve(load_zoo()[name]), weights=Weights(), format=Format.ONNX)
    path = cache.staging_dir(request) / "model.onnx"
    path.write_bytes(name.encode() * 100)
    cost = Cost(macs=7, parameters=3, method=FlopsMethod.COUNTED)
    staged = StagedExport(path=path, format=Format.ONNX, cost=cost, versions=(("onnx", "1"),))
    return Path(cache.commit(request, staged, None).path)


def test_a_missing_model_file_fails_its_own_export_only(workspace, capsys) -> None:
    card = 'family = "hybrid"\nsource = "file"\nentry = "../gone.onnx"\n'
    (workspace.cards / "mine.toml").write_text(card)
    _export(workspace, "resnet18")
    assert run(["models", "export", "resnet18", "mine", "--runtime", "onnx", "--json"]) == 3
    out, err = capsys.readouterr()
    assert [row["model"] for row in json.loads(out)] == ["resnet18"]
    assert "gone.onnx" in err
    assert run(["models", "export", "mine", "--runtime", "torch", "--json"]) == 4


def test_what_computes_waits_for_what_measures_on_this_host(stored, capsys) -> None:
    commands = (
        "results verify --repair", "report build --tables out", "models export --max-size 1GB",
    )  # fmt: skip
    with ThreadPoolExecutor(len(commands)) as pool:
        with host_lease("sweep s-1, which measures on this host"):
            running = [
                pool.submit(run, [word.replace("+", " ") for word in command.split()])
                for command in commands
            ]
            said, deadline_s = "", monotonic() + 60.0
            while said.count("waiting for sweep s-1, which measures") < len(commands):
                assert monotonic() < deadline_s, said
                assert not wait(running, timeout=0.1).done
                said += capsys.readouterr().err
        assert [it.result(timeout=60.0) for it in running] == [0, 0, 0]


def test_a_simulated_device_cannot_pose_as_this_hosts_cpu(workspace, capsys) -> None:
    own = local_cpu().name
    for name in ("local-cpu", own, "cpu-6b103d"):
        assert run(["devices", "add", name, "--kind", "simulated"]) == 2
        assert f"'{name}'" in capsys.readouterr().err
    assert list(workspace.devices.iterdir()) == []
    assert run(["devices", "add", own, "--kind", "cpu"]) == 0


def test_a_device_that_has_no_room_leaves_no_file(workspace, capsys) -> None:
    with no_room_beyond(10):
        assert run(["devices", "add", "sim", "--kind", "simulated"]) == 1
    err = capsys.readouterr().err
    assert "sim.yaml cannot be written" in err
    assert "sweep resume" not in err
    assert list(workspace.devices.iterdir()) == []


def test_a_device_file_that_cannot_be_read_is_removed_all_the_same(workspace, capsys) -> None:
    (workspace.devices / "sim.yaml").write_text("")
    (workspace.devices / "other.yaml").write_text("{")
    assert run(["devices", "list"]) == 2
    assert run(["devices", "remove", "sim"]) == 0
    assert "was removed" in capsys.readouterr().err
    assert [path.name for path in workspace.devices.iterdir()] == ["other.yaml"]
    assert run(["devices", "remove", "../cluster"]) == 2


def test_a_plan_says_what_no_real_device_measures(workspace, capsys) -> None:
    assert run(["devices", "add", "sim", "--kind", "simulated"]) == 0
    text = "name: t\nmodels: resnet18\nruntimes: onnx\ndevices: [local-cpu, sim]\n"
    (workspace.sweeps / "t.yaml").write_text(text)
    capsys.readouterr()
    assert run(["sweep", "plan", "t"]) == 0
    real, unreal = capsys.readouterr().out.splitlines()[2:4]
    assert "measured" in real
    assert "simulated" in unreal
    assert run(["sweep", "plan", "t", "--only", "*sim*"]) == 0
    assert "1 cell x 5 repeats = 5 processes" in capsys.readouterr().out


@pytest.mark.parametrize(("has_ray", "n_lines"), [(True, 1), (False, 0)])
def test_a_plan_counts_the_start_of_a_ray_only_where_one_starts(
    workspace, capsys, monkeypatch, has_ray: bool, n_lines: int
) -> None:
    name = "fleetrank.orchestrator.sweep.dispatch_backend.is_installed"
    monkeypatch.setattr(name, lambda library: has_ray)
    assert run(["devices", "add", "sim", "--kind", "simulated"]) == 0
    text = "name: t\nmodels: resnet18\nruntimes: onnx\ndevices: [sim]\n"
    (workspace.sweeps / "t.yaml").write_text(text)
    capsys.readouterr()
    assert run(["sweep", "plan", "t"]) == 0
    assert capsys.readouterr().out.count("to start and end Ray") == n_lines
    assert run(["sweep", "plan", "t", "--json"]) == 0
    assert (json.loads(capsys.readouterr().out)["time"]["starting_s"] > 0) is has_ray


@pytest.mark.parametrize(
    "command",
    [
        "report show latency", "report build", "report build --tables out", "results export",
        "query SELECT+*+FROM+measurements",
        f"report compare {SWEEP_ID} other",
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_cut", daily([True, False], True))
def test_every_command_that_reads_names_a_damaged_part(stored, command, is_cut, capsys) -> None:
    (part,) = stored.parts_folder(SWEEP_ID).iterdir()
    content = part.read_bytes()
    middle = content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :]
    part.write_bytes(content[:-9] if is_cut else middle)
    shutil.copytree(part.parent, part.parent.with_name("sweep_id=other"))
    write_list(stored.root, replace(read_list(stored.root, SWEEP_ID), sweep_id="other"))
    assert run([word.replace("+", " ") for word in command.split()]) == 1
    err = capsys.readouterr().err
    assert f"{part.name} is damaged" in err
    assert "results verify --repair" in err


@pytest.mark.parametrize(
    ("command", "code"),
    daily(
        [
            ("report build", 4), ("report show latency", 4), ("report build --tables out", 4),
            ("report compare a b", 2), ("query SELECT+1", 4),
        ],
        ("report build", 4), ("report show latency", 4), ("report compare a b", 2),
    ),
)  # fmt: skip
def test_nobody_waits_to_hear_that_there_is_nothing(workspace, command, code, capsys) -> None:
    with ThreadPoolExecutor(1) as pool:
        with host_lease("sweep s-1, which measures on this host"):
            words = [word.replace("+", " ") for word in command.split()]
            answer = pool.submit(run, words)
            assert wait([answer], timeout=60.0).done, "it waits"
        assert answer.result() == code
    assert "waiting" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["exampl", "sweeps/exampl.yaml", "exmple.yaml"])
def test_a_misspelt_sweep_file_is_guessed(workspace, name, capsys) -> None:
    assert run(["sweep", "plan", name]) == 2
    assert "did you mean sweeps/example.yaml?" in capsys.readouterr().err


def test_more_threads_than_the_host_has_are_answered_with_how_many_it_has(
    workspace, capsys
) -> None:
    (workspace.sweeps / "t.yaml").write_text("name: t\nmodels: resnet18\nthreads: 4096\n")
    assert run(["sweep", "plan", "t"]) == 4
    assert "set `threads` to" in capsys.readouterr().err


def _state(folder: Path) -> dict[Path, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_plan_and_a_card_are_shown_without_touching_the_cache(workspace, capsys) -> None:
    _export(workspace, "resnet18")
    _export(workspace, "resnet50").write_bytes(b"damaged")
    text = "name: t\nmodels: [resnet18, resnet50]\nruntimes: onnx\ndevices: [local-cpu]\n"
    (workspace.sweeps / "t.yaml").write_text(text)
    before = _state(workspace.artifacts)
    assert run(["sweep", "plan", "t"]) == 0
    out = capsys.readouterr().out
    assert "files: 1 ready, 1 to build" in out
    assert re.search(r"\d+ s to export on \d+ idle cores?", out)
    assert has(out, "2 cells", "sizes of models")
    for name, n_shown in (("resnet18", 1), ("resnet50", 0)):
        assert run(["models", "show", name]) == 0
        assert capsys.readouterr().out.count("# exported") == n_shown
    assert _state(workspace.artifacts) == before


def test_the_cache_is_pruned_to_a_size(workspace, capsys) -> None:
    paths = [_export(workspace, name) for name in ("resnet18", "resnet50")]
    assert run(["models", "export", "--max-size", "1GB"]) == 0
    assert all(path.exists() for path in paths)
    assert run(["models", "export", "--max-size", "0"]) == 0
    assert not any(path.exists() for path in paths)
    assert run(["models", "export", "--max-size", "much"]) == 2
    assert run(["models", "export", "resnet18", "--max-size", "0"]) == 2


@pytest.mark.export
def test_a_file_that_is_no_model_fails_with_the_reason_and_exit_code_3(workspace, capsys) -> None:
    (workspace.cards / "bad.onnx").write_text("this is a text file")
    card = 'family = "hybrid"\nsource = "file"\nentry = "bad.onnx"\n'
    (workspace.cards / "bad.toml").write_text(card)
    assert run(["models", "export", "bad"]) == 3
    err = capsys.readouterr().err
    assert has(err, "bad.onnx", "ONNX")
    assert "->" in err
    assert run(["models", "export", "bed"]) == 2
