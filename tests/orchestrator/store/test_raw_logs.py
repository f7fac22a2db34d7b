import pytest

from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.store.small_files import read_log, set_aside

ROW = {"sweep_id": "s-1", "cell_key": "abc", "repeat": 2, "attempt": 0, "raw_log": "count=5 é\n"}


def test_a_log_is_kept_in_a_file_and_read_back(tmp_path) -> None:
    row = set_aside(tmp_path, ROW)
    assert row["raw_log"] == "raw/s-1/abc-2-0.log.gz"
    assert read_log(tmp_path, row) == "count=5 é\n"
    assert {**row, "raw_log": None} == {**ROW, "raw_log": None}


def test_a_row_without_a_log_writes_nothing(tmp_path) -> None:
    row = {**ROW, "raw_log": None}
    assert set_aside(tmp_path, row) == row
    assert read_log(tmp_path, row) is None
    assert list(tmp_path.iterdir()) == []


def test_half_a_surrogate_pair_is_no_reason_to_lose_a_row(tmp_path) -> None:
    row = set_aside(tmp_path, {**ROW, "raw_log": "\ud800"})
    assert read_log(tmp_path, row) == "?"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "raw/../../x", "sweeps/s.json"])
def test_a_row_cannot_name_a_file_elsewhere(tmp_path, name) -> None:
    with pytest.raises(UsageError, match="logs lie in"):
        read_log(tmp_path, {**ROW, "raw_log": name})


@pytest.mark.parametrize("damage", [lambda log: log[:-9], lambda log: log[:10] + b"\xff" * 9])
def test_a_damaged_log_is_named(tmp_path, damage) -> None:
    row = set_aside(tmp_path, ROW)
    path = tmp_path / str(row["raw_log"])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match="abc-2-0"):
        read_log(tmp_path, row)
