"""Tags and notes of sweeps: stored beside the record, selectable, harmless whatever they hold."""

from pathlib import Path

import pytest

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.analysis.stored.sweep_tags import (
    SweepTags,
    read_tags,
    shown_tags,
    tagged_sweeps,
    tags_path,
)
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.housekeeping import copy_sweep, delete_sweep
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.tagging import change_tags, new_tags
from fleetrank.orchestrator.workspace.selectors import Selectors


@pytest.fixture
def store(tmp_path: Path, new_row) -> ResultStore:
    """Two sweeps with a row each."""
    store = ResultStore(tmp_path / "results")
    for sweep_id in ("s-1", "s-2"):
        store.create_sweep(SweepRecord.model_validate({"sweep_id": sweep_id, "state": "finished"}))
        with store.open_journal(sweep_id) as journal:
            journal.append(new_row(sweep_id=sweep_id))
        store.publish(sweep_id)
    return store


def test_tags_are_added_removed_and_kept_apart_from_every_other_file(store: ResultStore) -> None:
    before = {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}
    assert change_tags(store, "s-1", added=["b", "a", "b"]) == SweepTags(tags=("a", "b"))
    found = change_tags(store, "s-1", removed=["a"], note="new cooler")
    assert found == read_tags(store.root, "s-1") == SweepTags(tags=("b",), note="new cooler")
    assert change_tags(store, "s-1", note="").note is None
    assert change_tags(store, "s-1", removed=["b"]) == SweepTags()
    assert {path: path.read_bytes() for path in before} == before
    assert store.sweep_ids() == ["s-1", "s-2"]
    assert read_tags(store.root, "s-2") == SweepTags()


def test_a_sweep_is_tagged_while_its_driver_holds_the_lease(store: ResultStore) -> None:
    with store.lease("s-1"):
        change_tags(store, "s-1", added=["now"])
        store.update_record("s-1", {"n_ok": 1})
    assert read_tags(store.root, "s-1").tags == ("now",)


@pytest.mark.parametrize(
    "tag", ["", "two words", "a,b", "tag:x", "a\nb", "\x1b[31m", "x" * 41, "\u202etxt"]
)
def test_a_tag_that_lists_could_not_show_is_refused(store: ResultStore, tag: str) -> None:
    with pytest.raises(UsageError):
        change_tags(store, "s-1", added=[tag])
    assert not tags_path(store.root, "s-1").exists()


def test_wrong_requests_name_a_remedy(store: ResultStore) -> None:
    change_tags(store, "s-1", added=["x"])
    with pytest.raises(UsageError) as caught:
        change_tags(store, "s-1", removed=["y"])
    assert "x" in caught.value.remedy
    with pytest.raises(UsageError, match="does not exist"):
        change_tags(store, "s-9", added=["x"])
    with pytest.raises(UsageError):
        new_tags(["ok"], "two\nlines")
    with pytest.raises(UsageError):
        new_tags(["ok"], "x" * 501)
    assert new_tags(None, None) is None


def test_a_damaged_file_is_shown_and_not_overwritten(store: ResultStore) -> None:
    change_tags(store, "s-1", added=["x"])
    path = tags_path(store.root, "s-1")
    path.write_text(path.read_text().replace('"x"', '"y"'))
    assert "damaged" in str(shown_tags(store.root, "s-1").note)
    with pytest.raises(StoreError):
        change_tags(store, "s-1", added=["z"])


def test_a_tag_selects_its_sweeps(store: ResultStore) -> None:
    change_tags(store, "s-1", added=["old", "all"])
    change_tags(store, "s-2", added=["all"])
    assert tagged_sweeps(store.root, ["tag:all"]) == ("s-1", "s-2")
    assert tagged_sweeps(store.root, ["s-2", "tag:old", "s-2"]) == ("s-2", "s-1")
    assert Selectors(sweep="tag:old").selection(store.root).sweeps == ("s-1",)
    assert Selectors().selection(store.root).sweeps == ()
    with pytest.raises(NoDataError) as caught:
        tagged_sweeps(store.root, ["tag:none"])
    assert "all, old" in caught.value.remedy


def test_tags_are_deleted_and_copied_with_their_sweep(store: ResultStore, tmp_path: Path) -> None:
    change_tags(store, "s-1", added=["x"], note="n")
    other = ResultStore(tmp_path / "other")
    copy_sweep(other, store, "s-1")
    assert read_tags(other.root, "s-1") == SweepTags(tags=("x",), note="n")
    delete_sweep(other, "s-1")
    assert not tags_path(other.root, "s-1").exists()
