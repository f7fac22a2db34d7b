"""The writer of the table is here, its reader in `analysis`: they must agree."""

from fleetrank.analysis.stored.columns import READ_SCHEMA
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.store.results import ResultStore


def test_analysis_loads_what_was_published(tmp_path, new_row) -> None:
    store = ResultStore(tmp_path)
    sweep_id = str(new_row()["sweep_id"])
    store.create_sweep(SweepRecord(sweep_id=sweep_id))
    with store.open_journal(sweep_id) as journal:
        journal.append(new_row())
        journal.append(new_row(repeat=1, status="failed", samples_ns=None))
    store.publish(sweep_id)
    frame = load_measurements(tmp_path, sweep=sweep_id).collect()
    assert dict(frame.schema) == READ_SCHEMA
    assert frame["sweep_id"].to_list() == [sweep_id] * 2
    assert frame["samples_ns"].to_list() == [[10, 20, 30, 40], None]
    assert frame.row(0, named=True)["flags"] == ["drift"]
