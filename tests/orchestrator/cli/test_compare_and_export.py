"""`report compare`, `report build --tables` and Parquet as they are typed."""

import io
import os
import pty
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, Place, write_results
from stored_part import write_part
from wording import has

from fleetrank.orchestrator.cli.main import run

BASE, SLOW = "s-20260101T000000-aa", "s-20260102T000000-bb"
ONE, LAST = "s-20260103T000000-cc", "s-20260104T000000-dd"
SLOWER, FASTER = f"report compare {BASE} {SLOW}", f"report compare {SLOW} {BASE}"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    (root / "cluster.yaml").touch()
    slow = [Place(device=p.device, tier=p.tier, runtime=p.runtime, gflops=p.gflops / 1.5)
            for p in PLACES[:1]]  # fmt: skip
    fast = PLACES[:1]
    for sweep, places, repeats in (
        *((f"calm-{n}", fast, 6) for n in range(6)), (BASE, fast, 6), (SLOW, slow, 6),
        (ONE, PLACES[1:2], 1), (LAST, PLACES[1:2], 1),
    ):  # fmt: skip
        options = {"repeats": repeats, "n_samples": 3, "sweep": sweep}
        write_results(root / "results", nets=NETS[:4], places=places, **options)
    return root


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (SLOWER, 5, (f"{SLOW} against {BASE}", "4 cells: 4 slower")),
        (f"{SLOWER} --margin 2", 0, ()),
        # The newest sweep when only one is named; both have too few repeats.
        (f"report compare {ONE}", 4, (LAST, "1 process", "2", "no cell")),
        (f"{SLOWER} --margin wide", 2, ("wide",)),
        (f"report compare {BASE} nope", 2, ("nope", "does not exist")),
        # What an option requires and is not shown; a slower cell comes first.
        (f"{FASTER} --margin 20% --require-not-slower --require-power", 0, ()),
        (f"{FASTER} --margin 20% --require-same", 4, ("4", "cells", "same", "20")),
        (f"{SLOWER} --require-power", 5, ()),
        (f"{FASTER} --margin 0.1% --require-power", 4, ("4", "cells", "0.1")),
    ],
)
def test_each_comparison_has_its_exit_code_and_says_why(asked, line, code, said) -> None:
    answer = asked(line)
    assert answer.code == code
    assert has(answer.out + answer.err, *said)


def test_a_faster_sweep_says_so_in_each_row(asked) -> None:
    answer = asked(f"{FASTER} --json").json
    assert answer["cells"]["faster"] == 4
    assert {row["verdict"] for row in answer["rows"]} == {"faster"}


def test_a_margin_is_a_percentage_or_a_fraction(asked) -> None:
    answers = [asked(f"{SLOWER} {words} --json").json for words in ("--margin 30%", "--margin 0.3")]
    assert answers[0] == answers[1]
    assert answers[0]["margin"] == answers[0]["threshold"] == 0.3
    assert answers[0]["detectable_ratio"] > 1


def test_every_difference_is_printed_once(asked, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").touch()
    for sweep in (BASE, SLOW):
        options = {"repeats": 5, "n_samples": 3, "sweep": sweep}
        write_results(tmp_path / "results", nets=NETS[:1], places=PLACES[:1], **options)
    (part,) = (tmp_path / f"results/measurements/sweep_id={SLOW}").iterdir()
    names = ("runtime_version", "os", "governor", "python_version", "cpu_model")
    pl.read_parquet(part).with_columns(pl.lit("new").alias(n) for n in names).pipe(write_part, part)
    text = asked(SLOWER, root=tmp_path).out
    assert [text.count(f": {name} was") for name in names] == [1] * len(names)
    assert has(text, "session")


def test_tables_are_listed_and_files_of_others_stay(asked, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    build = f"report build --tables {folder} latency/latency flops/frm --to markdown"
    folder.mkdir()
    (folder / "flops-frm.md").write_text("mine")
    refused = asked(build)
    assert (refused.code, "--force" in refused.err) == (2, True)
    rows = asked(f"{build} --force --json").json
    files = {"latency.md", "flops-frm.md"}
    assert {row["file"] for row in rows} == files < {path.name for path in folder.iterdir()}


def test_a_selection_and_names_limit_what_is_written(asked, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    build = f"report build --tables {folder} latency/latency latency/memory --to latex,csv"
    rows = asked(f"{build} --model resnet18 --json").json
    stems = [str(row["file"]).partition(".")[0] for row in rows]
    assert stems == ["latency", "latency-memory"] * 2
    assert set(pl.read_csv(folder / "latency.csv")["model"]) == {"resnet18"}
    for words in ("--runtime onnx", "transfer", "--to pdf"):
        assert asked(f"report build {words}").code == 2
    assert asked(f"report build --tables {folder} --figures {folder}").code == 2
    assert asked(f"report build --figures {folder} --to gif").code == 2


def test_parquet_goes_through_a_pipe_and_not_to_a_terminal(
    workspace: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["query", "SELECT 1 AS one", "--format", "parquet", "--workspace", str(workspace)]
    assert run(words) == 0
    assert pl.read_parquet(io.BytesIO(capfdbinary.readouterr().out))["one"].to_list() == [1]
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as screen, os.fdopen(controller):
        monkeypatch.setattr("sys.stdout", screen)
        assert run(words) == 2
    assert b"--out FILE" in capfdbinary.readouterr().err
