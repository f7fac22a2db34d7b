"""A row that an importer forgot a part of is named before anything is stored."""

from pathlib import Path

import pytest
from wording import has

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers import importer
from fleetrank.analysis.importers.importer import Importer, read_releases
from fleetrank.analysis.importers.release import NEEDED_COLUMNS, Release, Row, require_complete
from fleetrank.foundation.registry import Registry

GOOD: Row = {
    "status": "ok", "model": "lab:a", "device": "lab-d", "tier": "cpu", "runtime": "torch",
    "backend": None, "mode": "eager", "precision": "fp32", "batch": 1, "options": "{}",
    "source": "lab", "source_ref": "notes.txt", "sample_kind": "vendor", "statistic": None,
    "latency_p50_ns": 5, "derived": ["x"], "licence": "MIT",
}  # fmt: skip


def _release(*rows: Row) -> Release:
    return Release(source="lab", version="1", licence="MIT", rows=rows)


LAB = Importer(read=lambda _path, _mapping: (_release(GOOD), _release(GOOD, {"status": "ok"})))


def test_complete_rows_pass() -> None:
    require_complete(_release(GOOD, GOOD))


def test_every_importer_is_held_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "IMPORTERS", Registry("source", {"lab": f"{__name__}:LAB"}))
    with pytest.raises(AnalysisError, match="row 2 has no model"):
        read_releases("lab", Path(), None)


@pytest.mark.parametrize("name", NEEDED_COLUMNS)
def test_a_missing_column_is_named_with_its_row(name: str) -> None:
    lacking = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(AnalysisError) as caught:
        require_complete(_release(GOOD, lacking))
    assert has(caught.value.message, "1", "lab", "row", "2", name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latency": 5.0}, "has no column 'latency'.*did you mean 'latency_"),
        ({"batch": "1"}, "batch is '1'.*whole number"),
        ({"batch": True}, "batch is True.*whole number"),
        ({"latency_p50_ns": "5"}, "latency_p50_ns is '5'.*number"),
        ({"latency_p50_ns": 1e300}, "latency_p50_ns is 1e.300.*from 1 ns"),
        ({"latency_mean_ns": 0.25}, "latency_mean_ns is 0.25.*from 1 ns"),
        ({"statistic": "best"}, "statistic is 'best'.*median, mean, minimum"),
        ({"model": None}, "has no model"),
        ({"device": ""}, "has no device"),
        ({"derived": "x"}, "derived is 'x'.*list"),
        ({"model": "m" * 201}, "model is 'm.*at most 200 letters"),
        ({"source_ref": "m" * 10_001}, "source_ref is 'm.*at most 10,000 letters"),
    ],
)
def test_a_wrong_value_is_named_with_its_row(change: Row, message: str) -> None:
    with pytest.raises(AnalysisError, match=f"row 1.*{message}"):
        require_complete(_release(GOOD | change))
