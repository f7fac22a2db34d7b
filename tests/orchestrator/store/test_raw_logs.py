import gzip

from fleetrank.orchestrator.store.small_files import set_aside

ROW = {
    "sweep_id": "s-1",
    "cell_key": "abc",
    "repeat": 2,
    "attempt": 0,
    "raw_log": "count=5 é\ud800\n",
}


def test_a_log_is_kept_in_a_file_and_half_a_surrogate_pair_loses_no_row(tmp_path) -> None:
    row = set_aside(tmp_path, ROW)
    assert row["raw_log"] == "raw/s-1/abc-2-0.log.gz"
    assert gzip.decompress((tmp_path / row["raw_log"]).read_bytes()).decode() == "count=5 é?\n"
    assert {**row, "raw_log": None} == {**ROW, "raw_log": None}
