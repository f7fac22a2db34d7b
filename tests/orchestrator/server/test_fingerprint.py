"""When the server knows that what it has computed is old."""

from pathlib import Path

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.server.answers import Fingerprint
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import exclude, take_back
from fleetrank.orchestrator.store.tagging import change_tags


def test_an_exclusion_and_its_end_are_noticed(tmp_path: Path) -> None:
    seen = [Fingerprint(tmp_path).now()]
    exclude(tmp_path, "s1", None, "x")
    seen.append(Fingerprint(tmp_path).now())
    take_back(tmp_path, 1)
    seen.append(Fingerprint(tmp_path).now())
    assert len(set(seen)) == 3
    assert Fingerprint(tmp_path).now() == seen[-1]


def test_a_tag_is_noticed(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.create_sweep(SweepRecord.model_validate({"sweep_id": "s", "state": "finished"}))
    before = Fingerprint(tmp_path).now()
    change_tags(store, "s", added=["base"])
    assert Fingerprint(tmp_path).now() != before
