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


def test_the_answer_comes_first_and_then_the_platforms(asked) -> None:
    lines = asked(f"faster {B} {A}").out.splitlines()
    assert has(lines[0], f"{A} is", f"times as fast as {B} here")
    heading = next(line for line in lines if line.startswith("label"))
    assert heading.split()[:4] == ["label", "order", "ratio", "interval"]
    assert "afirst_cores" not in "".join(lines)
    assert f"a is {A}, b is {B}" in lines


def test_only_json_and_the_explanation_learn_how_often_a_gap_is_kept(
    asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = []
    monkeypatch.setattr(pairs, "_with_gap", lambda fleet, answer, here: learned.append(1) or answer)
    for words, n in (("", 0), ("--explain", 1), ("--json", 2)):
        asked(f"faster {A} {B} {words}")
        assert len(learned) == n


def test_a_job_can_fail_if_the_order_does_not_hold(asked, workspace: Path) -> None:
    pair = ("mobilenet_v2", "squeezenet1_1")
    answer = fleetrank.faster(workspace / "results", *pair)
    orders = {one.order for one in answer.targets}
    for wanted, bad in (("reversed", {"reversed"}), ("undecided", {"reversed", "undecided"})):
        code = asked(f"faster {' '.join(pair)} --fail-if {wanted}").code
        assert code == (5 if orders & bad else 0), orders
    assert "reversed" in orders
    assert asked(f"faster {A} --fail-if reversed").code == 2


def test_json_and_the_function_say_the_same(asked, workspace: Path, tmp_path: Path) -> None:
    users = tmp_path / "users.csv"
    users.write_text("device, share\npixel-7, 60%\nelsewhere, 0.4\n")
    said = asked(f"faster {A} {B} --json --users", str(users)).json
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
def test_here_and_on_choose_platforms(asked, pixel: str) -> None:
    said = asked(f"faster {A} {B} --on */onnx/* --json --here", pixel).json
    assert said["here"]["platform_key"].startswith("pixel-7/")
    assert {one["platform_key"].split("/")[1] for one in said["targets"]} == {"onnx"}


def test_on_chooses_the_platforms_that_are_counted(asked) -> None:
    def counted(words: str = "") -> list[int]:
        orders = ("kept", "reversed", "equal", "undecided")
        rows = asked(f"faster {A} {words} --json").rows
        return [sum(row[order] for order in orders) for row in rows]

    assert set(counted("--on pixel-7/onnx/*")) == {1}
    assert min(counted()) > 1


def test_of_three_models_the_fastest_is_named_first(asked) -> None:
    text = asked(f"faster {A} {B} convnext_tiny --runtime onnx").out
    assert text.startswith("Of ")
    assert has(text.splitlines()[0], "3 platforms", f"{A} is", "on 3")
    said = asked(f"faster {A} {B} convnext_tiny --json").json
    assert {row["fastest"] for row in said["rows"]} <= {A, B, "convnext_tiny"}
    assert has(said["notes"][-1], "platforms", f"{A} is")
    assert asked(f"faster {A} {B} x --here p").code == 2


def test_the_default_workspace_is_used_and_said_and_not_for_what_changes_results(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ["report", "show", "pairs", "--part", "fastest", "--limit", "1"]
    assert run(words) == 2, "there is none"
    assert not (tmp_path / "fleetrank").exists()
    capsys.readouterr()
    assert run(["devices", "list"]) == 0
    assert run(["devices", "add", "sim", "--kind", "simulated"]) == 0
    assert capsys.readouterr().err.count("fleetrank is used") == 2, "once for each command"
    assert (tmp_path / "fleetrank/devices/sim.yaml").exists()
    assert run(["sweep", "plan", "missing.yaml"]) == 2
    assert "is used" in capsys.readouterr().err
    (tmp_path / "fleetrank/results").symlink_to(workspace / "results")
    assert run(words) == 0
    assert "is used" in capsys.readouterr().err
    assert run(["results", "delete", "any"]) == 2, "it changes them"


def test_terminal_and_page_list_the_orders_of_a_pair_alike(asked, workspace: Path) -> None:
    script = Path(__file__).parents[3] / "analysis/report/templates/answer.js"
    assert re.findall(r"const FIRST = (.*);", script.read_text()) == ["fleet ? fleet.listed : []"]
    stored = Session(load_measurements(workspace / "results"), Selection())
    first = json.loads(json.dumps(fleet_data(stored)["listed"]))
    text = asked("faster mobilenet_v2 squeezenet1_1").out
    orders = [line.split()[2] for line in text.partition("---")[2].splitlines()[1:7]]
    assert len(set(orders)) > 2
    assert orders == sorted(orders, key=first.index)


def test_memory_is_compared_and_not_energy_too(asked) -> None:
    memory = asked(f"faster {A} {B} --memory")
    assert has(memory.out, "needs", "times the memory", "MiB")
    both = asked(f"faster {A} {B} --memory --energy")
    assert both.code == 2
    assert has(both.err, "--memory", "--energy")


def test_a_registered_device_without_rows_counts(asked, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").touch()
    (tmp_path / "results").symlink_to(workspace / "results")
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/new-cpu.yaml").write_text("name: new-cpu\nkind: cpu\n")
    said = asked(f"faster {A} {B} --json", root=tmp_path).json
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
    asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    given = list[dict[str, object]]()

    def measured(content: dict[str, object], *_: object, **__: object) -> tuple[object, None]:
        given.append(content)
        return SimpleNamespace(sweep_id="ab-1", is_interrupted=False, n_failed=0), None

    monkeypatch.setattr(run_command, "_measured", measured)
    said = asked(f"ab {A} {A}:int8", root=tmp_path).out
    assert given[0]["models"] == [A]
    assert given[0]["precision_of"] == {A: ["fp32", "int8"]}
    assert has(said, f"{A}:int8 is 2.000 times as fast as {A}:fp32 here", "5 rounds")
    assert has(said, "Other programs used the host; stop them or use more rounds")
    faster = asked(f"faster {A}:fp32 {A}:int8 --here pixel-7/*", root=tmp_path)
    assert has(faster.out, "2.00 times")
    names, exact, keys = run_command._models_of(Workspace.at(tmp_path), [f"{A}:int8", B])
    assert (names, exact, keys["precision_of"]) == ([A, B], [f"{A}:int8", B], {A: ["int8"]})


def test_without_names_it_lists_pairs(asked) -> None:
    every = asked(f"faster {A} --json").rows
    assert len(every) == 12
    assert all(A in (row["model_a"], row["model_b"]) for row in every)
    assert all(row["reversed"] for row in asked("faster --json").rows)


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
