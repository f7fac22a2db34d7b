"""A results folder with one running sweep."""

from pathlib import Path

import pytest

from fleetrank.analysis.stored.sweep_record import SweepRecord, SweepState
from fleetrank.orchestrator.store.results import ResultStore

SWEEP_ID = "quick-20260102T030405-0a1b"


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path / "results")
    store.create_sweep(SweepRecord(sweep_id=SWEEP_ID, state=SweepState.RUNNING))
    return store
