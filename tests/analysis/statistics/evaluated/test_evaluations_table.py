"""Table `eval`: the newest of each setting, for a folder without any measurement too."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetrank.analysis.stored.evaluations import EVALUATIONS, METRICS
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table
from fleetrank.orchestrator.store.side import append_side

WHEN = datetime(2026, 1, 2, tzinfo=UTC)


def _store(results: Path, number: int, **changes: object) -> None:
    row: dict[str, object] = {
        "evaluation_id": f"e-{number}", "model": "tiny", "family": "llama", "weights": "tiny.pt",
        "task": "ppl", "data": "a.txt", "data_sha256": "a" * 64, "strategy": "vanilla",
        "quality_metric": "bits_per_byte", "quality": float(number), "runtime": "onnx",
        "device": "cpu-1", "precision": "fp32", "flags": [],
        "finished_utc": WHEN + timedelta(days=number),
    }  # fmt: skip
    append_side(results, EVALUATIONS, [row | changes])


def _table(results: Path, **selected: object) -> Table:
    frame = load_measurements(results)
    return make_table("eval", frame, Selection(**selected), results=results)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    _store(tmp_path, 1)
    _store(tmp_path, 2)
    _store(tmp_path, 3, runtime="torch")
    _store(tmp_path, 4, strategy="window")
    _store(tmp_path, 5, model="other", weights="seeded", flags=["seeded"], data="b.txt")
    return tmp_path


@pytest.mark.slow
def test_the_newest_of_each_setting_is_shown(results: Path) -> None:
    table = _table(results)
    assert sorted(table.frame["quality"]) == [2.0, 3.0, 4.0, 5.0]
    assert table.frame["data_sha256"].str.len_chars().unique().to_list() == [12]
    assert "random weights" in " ".join(table.notes)


@pytest.mark.slow
def test_each_figure_has_its_unit(tmp_path: Path) -> None:
    for number, metric in enumerate(METRICS):
        _store(tmp_path, number, quality_metric=metric)
    units = dict(_table(tmp_path).frame.select("quality_metric", "unit").iter_rows())
    assert (units.pop("perplexity"), units.pop("bits_per_byte")) == (None, "bits per byte")
    assert set(units.values()) == {"percent"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("selected", "wanted"),
    [
        ({"model": "ti*"}, [2.0, 3.0, 4.0]),
        ({"model": "other"}, [5.0]),
        ({"runtime": "torch"}, [3.0]),
        ({"where": (("runtime", "torch"),)}, [3.0]),
        ({"source": "cpu-*", "family": "llama", "model": "tiny"}, [2.0, 3.0, 4.0]),
    ],
)
def test_it_is_selected_without_a_measurement(
    results: Path, selected: dict[str, object], wanted: list[float]
) -> None:
    table = _table(results, **selected)
    assert sorted(table.frame["quality"]) == wanted
    assert ("random" in " ".join(table.notes)) is (wanted == [5.0])
