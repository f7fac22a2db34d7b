"""What an older fleetrank stored, without any checksum, is read, resumed and added to."""

import shutil
from pathlib import Path

import pytest
from wording import has

from fleetrank.analysis.stored.load import load_measurements
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.store.results import ResultStore

RECORDED = Path(__file__).parents[2] / "data" / "old_results"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(RECORDED, tmp_path / "ws")
    return tmp_path / "ws"


def test_it_is_verified_and_counted_as_unchecked(root, capsys) -> None:
    assert run(["--workspace", str(root), "results", "verify"]) == 0
    said = capsys.readouterr().out
    assert has(said, "ok", "4", "checksum")


@pytest.mark.slow
def test_its_rows_record_and_exclusions_are_read(root, capsys) -> None:
    frame = load_measurements(root / "results", origins=["simulated"]).collect()
    assert frame["repeat"].to_list() == [0, 1]
    # The column did not exist; these are samples of our own worker.
    assert frame["statistic"].to_list() == ["median"] * 2
    assert frame["excluded"].to_list() == ["a person walked past"] * 2
    arguments = ["--include-simulated", "--json"]
    assert run(["--workspace", str(root), "results", "exclude", "--undo", "1"]) == 0
    assert run(["--workspace", str(root), "report", "show", "latency", *arguments]) == 0
    assert "tiny" in capsys.readouterr().out


@pytest.mark.slow
def test_its_sweep_goes_on_and_new_rows_have_checksums(root, capsys) -> None:
    assert run(["--workspace", str(root), "sweep", "resume", "--inline"]) == 0
    store = ResultStore(root / "results")
    sweep_id = store.newest_sweep()
    assert [row["repeat"] for row in store.open_journal(sweep_id).rows()] == [0, 1, 2]
    assert run(["--workspace", str(root), "results", "verify"]) == 0
    # The part was written again, with a checksum; two lines of the journal stay without.
    assert has(capsys.readouterr().out, "ok", "2", "checksum")


@pytest.mark.slow
def test_where_its_journal_and_part_differ_nothing_says_which_is_right(root, capsys) -> None:
    (path,) = (root / "results" / "journal").iterdir()
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"device":"sim-a"', b'"device":"sim-b"', 1))
    assert run(["--workspace", str(root), "results", "verify", "--repair"]) == 1
    said = capsys.readouterr().err
    assert "device 'sim-b' and 'sim-a'" in said
    assert "side is unknown" in said
    assert len(list((root / "results" / "journal").iterdir())) == 1
