"""`faster` as it is typed, as a function, and its file of users."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from daily import daily
from fleet_rows import write_results
from stored_part import part_of, write_part
from wording import has

import fleetrank
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.pair_view import fleet_data
from fleetrank.analysis.statistics.pairs import pairs
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.foundation.errors import BadFileError
from fleetrank.orchestrator.cli import run_command
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.workspace.user_shares import read_shares
from fleetrank.orchestrator.workspace.workspace import Workspace

A, B = "mobilenet_v2", "resnet50"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    (root / "cluster.yaml").touch()
    write_results(root / "results", n_samples=5)
    return root


def typed(workspace: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["faster", *words, "--workspace", str(workspace)]) == 0
    return capsys.readouterr().out


def test_the_answer_comes_first_and_then_the_platforms(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = typed(workspace, capsys, B, A).splitlines()
    assert has(lines[0], f"{A} is", f"times as fast as {B} here")
    heading = next(line for line in lines if line.startswith("label"))
    assert heading.split()[:4] == ["label", "order", "ratio", "interval"]
    assert "afirst_cores" not in "".join(lines)
    assert f"a is {A}, b is {B}" in lines


def test_only_json_and_the_explanation_learn_how_often_a_gap_is_kept(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = []
    monkeypatch.setattr(pairs, "_with_gap", lambda fleet, answer, here: learned.append(1) or answer)
    for words, n in (((), 0), (("--explain",), 1), (("--json",), 2)):
        typed(workspace, capsys, A, B, *words)
        assert len(learned) == n


def test_a_job_can_fail_if_the_order_does_not_hold(workspace: Path) -> None:
    pair = ("mobilenet_v2", "squeezenet1_1")
    answer = fleetrank.faster(workspace / "results", *pair)
    orders = {one.order for one in answer.targets}
    for wanted, bad in (("reversed", {"reversed"}), ("undecided", {"reversed", "undecided"})):
        code = run(["faster", *pair, "--fail-if", wanted, "--workspace", str(workspace)])
        assert code == (5 if orders & bad else 0), orders
    assert "reversed" in orders
    assert run(["faster", A, "--fail-if", "reversed", "--workspace", str(workspace)]) == 2


def test_json_and_the_function_say_the_same(
    workspace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    users = tmp_path / "users.csv"
    users.write_text("device, share\npixel-7, 60%\nelsewhere, 0.4\n")
    said = json.loads(typed(workspace, capsys, A, B, "--users", str(users), "--json"))
    answer = fleetrank.faster(workspace / "results", A, B, users={"pixel-7": 60, "elsewhere": 40})
    assert said["here"]["ratio"] == answer.here.ratio > 1
    assert has(answer.text.splitlines()[0], f"{A} is", "other devices")
    assert [one["order"] for one in said["targets"]] == [one.order for one in answer.targets]
    assert said["users"]["unknown"] == ["elsewhere"]
    assert said["users"]["faster"] == answer.users.faster


@pytest.mark.parametrize(
    "pixel",
    daily(["pixel-7/*", "pixel-7", "Google Pixel 7", "Google Pix*"], "pixel-7/*", "Google Pixel 7"),
)
def test_here_and_on_choose_platforms(
    workspace: Path, capsys: pytest.CaptureFixture[str], pixel: str
) -> None:
    said = json.loads(typed(workspace, capsys, A, B, "--here", pixel, "--on", "*/onnx/*", "--json"))
    assert said["here"]["platform_key"].startswith("pixel-7/")
    assert {one["platform_key"].split("/")[1] for one in said["targets"]} == {"onnx"}


def test_on_chooses_the_platforms_that_are_counted(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def counted(*words: str) -> list[int]:
        rows = json.loads(typed(workspace, capsys, A, *words, "--json"))["rows"]
        orders = ("kept", "reversed", "equal", "undecided")
        return [sum(row[order] for order in orders) for row in rows]

    assert set(counted("--on", "pixel-7/onnx/*")) == {1}
    assert min(counted()) > 1


def test_of_three_models_the_fastest_is_named_first(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = typed(workspace, capsys, A, B, "convnext_tiny", "--runtime", "onnx")
    assert text.startswith("Of ")
    assert has(text.splitlines()[0], "3 platforms", f"{A} is", "on 3")
    said = json.loads(typed(workspace, capsys, A, B, "convnext_tiny", "--json"))
    assert {row["fastest"] for row in said["rows"]} <= {A, B, "convnext_tiny"}
    assert has(said["notes"][-1], "platforms", f"{A} is")
    assert run(["faster", A, B, "x", "--here", "p", "--workspace", str(workspace)]) == 2


def test_commands_that_read_use_the_default_workspace(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ["report", "show", "pairs", "--part", "fastest", "--limit", "1"]
    assert run(words) == 2, "there is none"
    assert not (tmp_path / "fleetrank").exists()
    (tmp_path / "fleetrank").symlink_to(workspace)
    capsys.readouterr()
    assert run(words) == 0
    assert "is used" in capsys.readouterr().err
    assert run(["results", "delete", "any"]) == 2, "it changes them"


def test_terminal_and_page_list_the_orders_of_a_pair_alike(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Path(__file__).parents[3] / "analysis/report/templates/answer.js"
    assert re.findall(r"const FIRST = (.*);", script.read_text()) == ["fleet ? fleet.listed : []"]
    stored = Session(load_measurements(workspace / "results"), Selection())
    first = json.loads(json.dumps(fleet_data(stored)["listed"]))
    text = typed(workspace, capsys, "mobilenet_v2", "squeezenet1_1")
    orders = [line.split()[2] for line in text.partition("---")[2].splitlines()[1:7]]
    assert len(set(orders)) > 2
    assert orders == sorted(orders, key=first.index)


def test_devices_and_sweeps_have_the_default_workspace_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run(["devices", "list"]) == 0
    assert run(["devices", "add", "sim", "--kind", "simulated"]) == 0
    assert capsys.readouterr().err.count("fleetrank is used") == 2, "once for each command"
    assert (tmp_path / "fleetrank/devices/sim.yaml").exists()
    assert run(["sweep", "plan", "missing.yaml"]) == 2
    assert "is used" in capsys.readouterr().err


def test_memory_is_compared_and_not_energy_too(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert has(typed(workspace, capsys, A, B, "--memory"), "needs", "times the memory", "MiB")
    both = ["faster", A, B, "--memory", "--energy", "--workspace", str(workspace)]
    assert run(both) == 2
    assert has(capsys.readouterr().err, "--memory", "--energy")


def test_a_registered_device_without_rows_counts(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workspace / "devices"
    folder.mkdir(exist_ok=True)
    (folder / "new-cpu.yaml").write_text("name: new-cpu\nkind: cpu\n")
    try:
        said = json.loads(typed(workspace, capsys, A, B, "--json"))
    finally:
        (folder / "new-cpu.yaml").unlink()
    (row,) = (one for one in said["targets"] if one["platform_key"] == "new-cpu")
    assert row["order"] == "not measured"


def test_ab_ends_with_the_order_elsewhere(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fleetrank.load(workspace / "results")
    here = rows.filter(pl.col("platform_key").str.starts_with("pixel-7/onnx"))
    opened = SimpleNamespace(workspace=SimpleNamespace(results=workspace / "results"))
    monkeypatch.setattr(run_command, "current", lambda: opened)
    (_, sentence) = run_command._elsewhere(here, (A, B))
    assert has(sentence, f"{A} is", "pixel-7", "other devices")
    assert run_command._elsewhere(here, (A, "unknown")) == ()


def test_ab_and_run_take_one_precision_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the measurement is replaced, by rounds in which int8 is twice as fast."""
    (tmp_path / "cluster.yaml").touch()
    results = write_results(tmp_path / "results", n_samples=5)
    rows = pl.read_parquet(results / "measurements/**/*.parquet")
    is_a = (pl.col("model") == A) & pl.col("platform_key").str.starts_with("pixel-7/onnx")
    plain = rows.filter(is_a, pl.col("status") == "ok").with_columns(
        pl.col("started_utc").dt.offset_by("1d"),
        pl.lit("ab-1").alias("sweep_id"), pl.lit("rounds").alias("design"),
        pl.format("r{}", "repeat").alias("round_id"), pl.lit(["busy_host"]).alias("flags"),
        latency_p50_ns=pl.col("latency_p50_ns") * (1 + pl.col("repeat") % 2),
    )  # fmt: skip
    int8 = plain.with_columns(
        pl.lit("int8").alias("precision"), pl.col("cell_key") + " int8",
        pl.col("platform_key").str.replace("fp32", "int8"), pl.col("latency_p50_ns") / 2,
    )  # fmt: skip
    write_part(pl.concat([plain, int8]), part_of(results, "ab-1"))
    asked = list[dict[str, object]]()

    def measured(content: dict[str, object], *_: object, **__: object) -> tuple[object, None]:
        asked.append(content)
        return SimpleNamespace(sweep_id="ab-1", is_interrupted=False, n_failed=0), None

    monkeypatch.setattr(run_command, "_measured", measured)
    at = ["--workspace", str(tmp_path)]
    assert run(["ab", A, f"{A}:int8", *at]) == 0
    said = capsys.readouterr().out
    assert asked[0]["models"] == [A]
    assert asked[0]["precision_of"] == {A: ["fp32", "int8"]}
    assert has(said, f"{A}:int8 is 2.000 times as fast as {A}:fp32 here", "5 rounds")
    assert has(said, "Other programs used the host; stop them or use more rounds")
    assert has(
        typed(tmp_path, capsys, A + ":fp32", A + ":int8", "--here", "pixel-7/*"), "2.00 times"
    )
    names, exact, keys = run_command._models_of(Workspace.at(tmp_path), [f"{A}:int8", B])
    assert (names, exact, keys["precision_of"]) == ([A, B], [f"{A}:int8", B], {A: ["int8"]})


def test_without_names_it_lists_pairs(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = json.loads(typed(workspace, capsys, A, "--json"))["rows"]
    assert len(every) == 12
    assert all(A in (row["model_a"], row["model_b"]) for row in every)
    swapped = json.loads(typed(workspace, capsys, "--json"))["rows"]
    assert all(row["reversed"] for row in swapped)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model,share\na,1\n", ("lacks a column", "device", "share")),
        ("device,share\na,1\na,2\n", ("line 3", "twice")),
        ("device,share\na,-1\n", ("line 2", "share above 0")),
        ("device,share\na,nan\n", ("line 2", "share above 0")),
        ("device,share\na,\n", ("line 2", "share above 0")),
        ("device,share\n,1\n", ("line 2", "not a device")),
        ("device,share\na\x1b[2J,1\n", ("line 2", "not a device")),
        ("device,share\n", ("0 devices",)),
        ("", ("lacks a column",)),
    ],
)
def test_a_file_of_users_with_a_mistake_is_refused(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "users.csv"
    path.write_text(text)
    with pytest.raises(BadFileError) as raised:
        read_shares(path)
    assert has(raised.value.message, *words)
    assert raised.value.remedy


def test_shares_are_numbers_or_percent(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_text('device,share,note\n"Galaxy S25, blue",12%,x\npixel-6,0.5,\n')
    assert read_shares(path) == {"Galaxy S25, blue": 0.12, "pixel-6": 0.5}
