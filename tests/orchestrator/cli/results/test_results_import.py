"""What others published, imported as a user does it."""

import hashlib
import json
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from full_disk import no_room_beyond
from lab_mapping import LAB_MAPPING
from wording import has
from world import World, call_inside

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.part_list import list_path
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.foundation.lease import host_lease
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.workspace.workspace import Workspace

DATA = Path(__file__).parents[3] / "data"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch, capsys) -> Workspace:
    assert run(["init", str(tmp_path / "w")]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "w")
    return Workspace.find()


TIMM, HUB = (("--from", name, str(DATA / name.replace("-", "_"))) for name in ("timm", "qai-hub"))


@dataclass(frozen=True)
class Imported:
    """A workspace that tests only read, and what the import of each source said."""

    workspace: Workspace
    timm: list[dict[str, object]]
    hub: list[dict[str, object]]

    def rows(self, source: str) -> list[dict[str, object]]:
        frame = load_measurements(self.workspace.results)
        return frame.filter(pl.col("source") == source).collect().to_dicts()

    def record(self, release: dict[str, object]) -> SweepRecord:
        return ResultStore(self.workspace.results).sweep_record(str(release["sweep_id"]))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    workspace = Workspace.init(tmp_path_factory.mktemp("imported") / "w")
    said = [
        json.loads(
            call_inside(workspace.root, workspace.root, "results", "import", *one, "--json").stdout
        )
        for one in (TIMM, HUB)
    ]
    return Imported(workspace, *said)


@pytest.fixture
def imported(made: Imported, monkeypatch: pytest.MonkeyPatch) -> Imported:
    monkeypatch.chdir(made.workspace.root)
    return made


def _import(capsys, *arguments: str) -> list[dict[str, object]]:
    assert run(["results", "import", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _rows(workspace: Workspace) -> list[dict[str, object]]:
    return load_measurements(workspace.results).collect().to_dicts()


def test_each_release_becomes_a_sweep_with_its_provenance(imported: Imported) -> None:
    first, second = imported.timm
    assert str(first["sweep_id"]).startswith("import-timm-pt2.4.0-")
    record = imported.record(first)
    assert record.origin == "imported"
    assert record.licence == "Apache-2.0, huggingface/pytorch-image-models"
    assert record.dropped == {"no throughput": 1}
    assert len(record.files) == 2
    assert record.state == "finished"
    assert second["n_rows"] == 1


def test_an_import_waits_for_a_measurement_unless_it_shall_start_now(
    workspace, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("fleetrank.orchestrator.cli.reading_turn.LONGEST_READING_WAIT_S", 0.1)
    with host_lease("sweep s-1, which measures here"):
        assert run(["results", "import", *TIMM, "--now"]) == 0
        said = capsys.readouterr()
        assert (said.err, "dropped: 1 x no throughput" in said.out) == ("", True)
        assert run(["results", "import", *TIMM]) == 0
    assert has(capsys.readouterr().err, "sweep s-1", "since", "flag beside_reading")


def test_the_journal_of_an_import_is_packed_and_its_record_has_the_counts(
    workspace, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("fleetrank.orchestrator.store.journal.WORTH_PACKING_BYTES", 1)
    first, _ = _import(capsys, *TIMM)
    store = ResultStore(workspace.results)
    journal = store.open_journal(str(first["sweep_id"]))
    assert not journal.path.exists()
    assert len(list(journal.rows())) == first["n_rows"]
    record = store.sweep_record(str(first["sweep_id"]))
    assert (record.n_ok, record.n_failed, record.n_left) == (first["n_rows"] - 1, 1, 0)
    assert run(["results", "verify"]) == 0
    capsys.readouterr()
    again, _ = _import(capsys, *TIMM)
    assert again["sweep_id"] == first["sweep_id"]


def test_rows_are_imported_ones_without_samples_or_times_of_their_own(imported: Imported) -> None:
    rows = [row for row in imported.rows("timm") if row["status"] == "ok"]
    assert {row["origin"] for row in rows} == {"imported"}
    assert {row["samples_ns"] for row in rows} == {None}
    assert all(row["licence"] and row["source_ref"] and row["derived"] for row in rows)
    (ours,) = [row for row in rows if row["model"] == "resnet50" and row["tier"] == "gpu"]
    assert ours["family"] == "standard_cnn"


def test_a_source_with_accuracies_keeps_its_own_and_one_without_gets_the_cards(
    workspace, capsys, tmp_path
) -> None:
    old, _ = _import(capsys, *TIMM)
    (bare := tmp_path / "bare").mkdir()
    for path in (DATA / "timm").glob("benchmark-*pt240*.csv"):
        shutil.copy(path, bare / path.name)
    (other,) = _import(capsys, "--from", "timm", str(bare))
    own = [row for row in _rows(workspace) if row["sweep_id"] == old["sweep_id"]]
    kept = {row["accuracy_source"] for row in own if row["accuracy_top1"] is not None}
    assert kept
    assert all(str(source).startswith("timm results-imagenet.csv") for source in kept)
    added = [row for row in _rows(workspace) if row["sweep_id"] == other["sweep_id"]]
    (ours,) = [row for row in added if row["model"] == "resnet50" and row["tier"] == "gpu"]
    assert ours["accuracy_top1"] == 76.13
    assert ours["accuracy_source"].endswith("by equivalence")
    store = ResultStore(workspace.results)
    assert "source's own" in store.sweep_record(str(old["sweep_id"])).notes[-1]
    assert "card's" in store.sweep_record(str(other["sweep_id"])).notes[-1]


def test_a_vendors_jobs_are_imported_release_by_release(imported: Imported) -> None:
    old, new = imported.hub
    assert (old["release"], new["release"]) == ("v0.12.1", "v0.46.1")
    assert new["aliases"] == {"QCS8275 (Proxy)": "SA7255P ADP"}
    assert new["dropped"] == {"job not passed": 1, "mirror": 1, "unknown runtime": 1}
    used = [row for row in imported.rows("qai-hub") if row["status"] == "ok"]
    assert {row["tier"] for row in used} == {"edge"}
    ours = [row for row in used if row["model"] == "resnet18"]
    assert {row["flops"] for row in ours} == {3_628_000_000}
    assert {row["input_size"] for row in ours} == {224}
    assert "qai-hub:inception_v3" in {row["model"] for row in used}
    results = imported.workspace.results
    tested = read_side(results, EVALUATIONS)
    assert {*tested.select("model", "quality").iter_rows()} == {
        ("resnet18", 69.4),
        ("resnet18", 69.1),
    }
    assert {*tested["sweep_id"]} == {new["sweep_id"]}, "they are deleted with their release"
    named = Session(load_measurements(results), Selection(precision="any", runtime="qnn"))
    assert named.panel.models == ("resnet18:w8a16",), "other integers that count as int8"


def test_facts_fill_what_a_vendor_does_not_state(workspace, capsys) -> None:
    _, first = _import(capsys, *HUB)
    before = {row["model"]: row for row in _rows(workspace)}
    assert before["qai-hub:inception_v3"]["flops"] is None
    table = Path("models.csv")
    table.write_text("model,flops,accuracy\ninception_v3,11.4G,77.294\nresnet18,1.8G,50\n")
    old, again = _import(capsys, *HUB, "--facts", "models.csv")
    assert not old["is_new"]  # no row of it lacks what the file states
    assert again["earlier"] == [first["sweep_id"]]
    after = [row for row in _rows(workspace) if row["sweep_id"] == again["sweep_id"]]
    assert {row["flops"] for row in after if row["model"] == "qai-hub:inception_v3"} == {
        11_400_000_000
    }
    # The card that is declared equal states both already.
    ours = {(row["flops"], row["accuracy_top1"]) for row in after if row["model"] == "resnet18"}
    assert ours == {(before["resnet18"]["flops"], before["resnet18"]["accuracy_top1"])}
    record = ResultStore(workspace.results).sweep_record(str(again["sweep_id"]))
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    assert any(f"facts models.csv sha256:{digest}" in name for name in record.files)
    assert any("differs" in note and "2 models" in note for note in record.notes)


def test_facts_about_an_unknown_model_store_nothing(workspace, capsys) -> None:
    Path("models.csv").write_text("model,flops\nresnet18,1\ninception_v33,11.4G\n")
    assert run(["results", "import", *HUB, "--facts", "models.csv"]) == 2
    error = capsys.readouterr().err
    assert "line 3" in error
    assert "no model 'inception_v33'" in error
    assert "did you mean 'inception_v3'" in error
    assert ResultStore(workspace.results).sweep_ids() == []


def test_the_folder_of_one_release_is_that_release(imported: Imported, capsys) -> None:
    (again,) = _import(capsys, "--from", "qai-hub", str(DATA / "qai_hub" / "v0.46.1"))
    assert (again["release"], again["is_new"]) == ("v0.46.1", False)


def test_the_same_files_twice_add_nothing_and_say_so(imported: Imported, capsys) -> None:
    rows = imported.rows("timm")
    again = [(one["sweep_id"], one["is_new"]) for one in _import(capsys, *TIMM)]
    assert again == [(one["sweep_id"], False) for one in imported.timm]
    assert imported.rows("timm") == rows
    assert run(["results", "import", *TIMM]) == 0
    assert "nothing new" in capsys.readouterr().out


def test_an_import_that_was_cut_short_is_completed(workspace, capsys) -> None:
    first, _ = _import(capsys, *TIMM)
    sweep_id = str(first["sweep_id"])
    store = ResultStore(workspace.results)
    shutil.rmtree(store.parts_folder(sweep_id))
    list_path(store.root, sweep_id).unlink()
    journal = store.open_journal(sweep_id).path
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:4]))
    store.update_record(sweep_id, {"state": "importing"})
    assert _import(capsys, *TIMM)[0]["is_new"]
    assert sum(row["sweep_id"] == sweep_id for row in _rows(workspace)) == 11
    assert run(["results", "verify"]) == 0


def test_an_import_without_room_is_to_be_run_again(workspace, capsys) -> None:
    with no_room_beyond(6000):
        assert run(["results", "import", *TIMM]) == 1
    err = capsys.readouterr().err
    assert "run the command again" in err
    assert "sweep resume" not in err
    assert len(_import(capsys, *TIMM)) == 2


def test_what_is_dropped_is_listed_with_its_reason(imported: Imported, capsys) -> None:
    assert run(["report", "show", "trust", "--part", "dropped", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    (row,) = (one for one in rows if one["model"] == "timm:stuck@224")
    assert row["detail"] == "no throughput: '0'"
    assert row["error_stage"] == "import"


def test_an_import_is_no_sweep_that_could_go_on(imported: Imported, capsys) -> None:
    assert run(["sweep", "status"]) == 4
    assert run(["sweep", "resume", str(imported.timm[0]["sweep_id"])]) == 2
    assert "was imported" in capsys.readouterr().err


def test_a_folder_without_tables_is_refused(workspace, capsys) -> None:
    assert run(["results", "import", "--from", "timm", "."]) == 2
    assert "->" in capsys.readouterr().err


def test_any_csv_is_imported_through_a_mapping(workspace, capsys) -> None:
    Path("mapping.toml").write_text(LAB_MAPPING)
    Path("lab.csv").write_text("net,phone,ms\nr18,Pixel 7,10\nr18,Pixel 7,12\nmine,Pixel 7,1\n")
    (done,) = _import(capsys, "--from", "csv", "lab.csv", "--map", "mapping.toml")
    assert str(done["sweep_id"]).startswith("import-lab-1-")
    rows = {(row["model"], row["repeat"]): row["latency_p50_ns"] for row in _rows(workspace)}
    assert rows == {("resnet18", 0): 10e6, ("resnet18", 1): 12e6, ("lab:mine", 0): 1e6}
    assert run(["results", "import", "--from", "csv", "lab.csv"]) == 2
    assert run(["results", "import", "--from", "timm", ".", "--map", "mapping.toml"]) == 2


def test_files_of_one_release_stand_beside_each_other(workspace, capsys) -> None:
    Path("mapping.toml").write_text(LAB_MAPPING)
    for phone in "de":
        Path(f"{phone}.csv").write_text(f"net,phone,ms\nr18,{phone},10\nmine,{phone},1\n")
    shutil.copy("e.csv", "copy.csv")
    first, second, again = (
        _import(capsys, "--from", "csv", f"{name}.csv", "--map", "mapping.toml")[0]
        for name in ("d", "e", "copy")
    )
    assert (second["earlier"], second["beside"]) == ([], [first["sweep_id"]])
    assert (again["earlier"], again["beside"]) == ([second["sweep_id"]], [first["sweep_id"]])
    # A copy of a file is not another measurement.
    layers = Session(load_measurements(workspace.results), Selection()).repeats.sweeps
    assert np.isfinite(layers[0]).sum(axis=-1).tolist() == [[1, 1], [1, 1]]


def test_a_mapping_to_a_card_that_does_not_exist_is_refused(workspace, capsys) -> None:
    Path("mapping.toml").write_text(LAB_MAPPING.replace("resnet18", "resnet81"))
    Path("lab.csv").write_text("net,phone,ms\nr18,Pixel 7,10\n")
    assert run(["results", "import", "--from", "csv", "lab.csv", "--map", "mapping.toml"]) == 2
    assert "did you mean 'resnet18'" in capsys.readouterr().err


def test_the_command_of_a_finding_excludes_its_cell(workspace, capsys) -> None:
    Path("mapping.toml").write_text(LAB_MAPPING)
    times = [(model, phone, (model + 1) * (10000 if (model, phone) == (3, 1) else 10))
             for model in range(8) for phone in range(4)]  # fmt: skip
    lines = [f"net {model},Phone {phone},{ms}" for model, phone, ms in times]
    Path("lab.csv").write_text("\n".join(("net,phone,ms", *lines)))
    _import(capsys, "--from", "csv", "lab.csv", "--map", "mapping.toml")
    ask = ["report", "show", "trust", "--part", "findings", "--json"]
    ask += ["--runtime", "tflite", "--what", "unit-slip"]
    assert run(ask) == 0
    (found,) = json.loads(capsys.readouterr().out)["rows"]
    assert run(shlex.split(found["command"])[1:]) == 0
    capsys.readouterr()
    assert run(ask) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == []
    assert run([*ask[:-1], "unit-slips"]) == 2
    assert "'unit-slip'" in capsys.readouterr().err


def test_names_from_a_hostile_file_neither_drive_the_terminal_nor_break_the_store(
    workspace, capsys
) -> None:
    folder = workspace.root / "hub" / "v1.0" / "m"
    folder.mkdir(parents=True)
    job = {"job_id": "j", "job_status": "Passed", "inference_time_milliseconds": 1,
           "primary_compute_unit": "NPU"}  # fmt: skip
    metrics = {"\x1b[2J (Proxy)": {"tflite": job}, "a/b": {"tflite": job}}
    parts = {"float": {"components": {"C": {"performance_metrics": metrics}}}}
    # JSON is YAML.
    (folder / "perf.yaml").write_text(json.dumps({"precisions": parts}))
    assert run(["results", "import", "--from", "qai-hub", "hub"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert r"alias: \u001b[2J (Proxy) is a" in shown
    (kept, mirror) = sorted(_rows(workspace), key=lambda row: str(row["status"]), reverse=True)
    assert kept["platform_key"].startswith("qai-hub-a-b/tflite/npu/")
    assert mirror["status"] == "failed"


def test_the_demo_answers_the_question(world: World) -> None:
    assert has(world.said["demo"]["out"], "3085 usable", "BSD-3-Clause")
    pair = world.call("faster", "mobilenet_v2", "squeezenet1_1")
    assert has(pair.stdout, "squeezenet1_1 is", "12 of 12 other devices")
    assert has(world.call("faster").stdout, "Orders that are reversed")


def test_a_device_without_measurements_is_like_a_label_or_a_pattern(world: World) -> None:
    for like in ("Samsung Galaxy S24", "*galaxy-s24*", "Samsung Galaxy S24, tflite, fp16"):
        words = ("--device", "new", "--like", like, "--models", "mobile*")
        said = world.call("predict", *words).stdout
        assert has(said, "new device like", "tflite", "mobilenet_v2")
