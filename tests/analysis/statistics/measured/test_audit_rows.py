import json

import pytest

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow

LATE = "import-hub-v0.46.1-20260101T000000-a"
EARLY = "import-hub-v0.9.0-20260201T000000-b"


def _findings(frame, what: str) -> list[dict[str, object]]:
    table = make_table("trust/findings", frame, Selection(settings=(("what", what),)))
    return table.frame.to_dicts()


def test_a_row_that_is_stored_twice_is_reported_once(make_attempts) -> None:
    row = {"latency_p50_ns": 1234567.0, "peak_memory_bytes": 5000}
    rows = [row, row | {"repeat": 1}, row | {"model": "b", "latency_p50_ns": 2e6}]
    (found,) = _findings(make_attempts(rows), "repeated-rows")
    assert (found["model"], found["figure"]) == ("a", 2)
    assert "exclude s1 --only 'a on d1/onnx/b1/t1'" in str(found["command"])
    rows[1] |= {"peak_memory_bytes": 5001}
    assert _findings(make_attempts(rows), "repeated-rows") == []


def test_a_file_imported_twice_is_reported_by_platform(make_attempts) -> None:
    rows = [
        {"model": model, "latency_p50_ns": value, "sweep_id": sweep, "origin": "imported"}
        for model, value in {"a": 1e6, "b": 2e6}.items()
        for sweep in ("s1", "s2")
    ]
    (found,) = _findings(make_attempts(rows), "repeated-rows")
    assert (found["model"], found["figure"], found["command"]) == (None, 4, None)
    assert "s1, s2" in str(found["detail"])
    job = {"source": "hub", "runtime_settings": json.dumps({"job_id": "j1"})}
    assert _findings(make_attempts([row | job for row in rows]), "repeated-rows") == []


@pytest.mark.parametrize(("late", "text"), [("cpu", "before on npu"), ("npu", None)])
def test_a_model_that_a_newer_release_runs_elsewhere_is_named(
    make_attempts, late: str, text: str | None
) -> None:
    facts = {"source": "hub", "latency_p50_ns": 1e6}
    rows = [
        facts | {"sweep_id": EARLY, "backend": "npu", "platform_key": "d1/npu"},
        facts | {"sweep_id": LATE, "backend": late, "platform_key": f"d1/{late}"},
    ]
    found = _findings(make_attempts(rows), "changed placement")
    assert [one["platform_key"] for one in found] == ([] if text is None else ["d1/cpu"])
    assert all(text in str(one["detail"]) and LATE in str(one["command"]) for one in found)


def test_layers_that_moved_to_another_unit_are_a_changed_placement(make_attempts) -> None:
    rows = [
        {"sweep_id": sweep, "source": "hub", "backend": "npu", "latency_p50_ns": 1e6,
         "runtime_settings": json.dumps({"layers": layers}, separators=(",", ":"))}
        for sweep, layers in ((EARLY, {"npu": 30, "cpu": 0}), (LATE, {"npu": 20, "cpu": 10}))
    ]  # fmt: skip
    (found,) = _findings(make_attempts(rows), "changed-placement")
    assert "layers on cpu+npu" in str(found["detail"])


@pytest.mark.parametrize("factor", [1.048576, 1000, 1024, 1 / 1.048576])
def test_memory_in_another_unit_than_in_older_sweeps_is_found(make_attempts, factor) -> None:
    rows = [
        {"model": f"m{i}", "latency_p50_ns": 1e6 * (i + 1), "sweep_id": sweep,
         "started_utc": hour, "peak_memory_bytes": round(1e8 * (i + 1) * by)}
        for i in range(6)
        for hour, (sweep, by) in enumerate({"s1": 1.0, "s2": factor}.items())
    ]  # fmt: skip
    (found,) = _findings(make_attempts(rows), "memory-in-another-unit")
    assert found["figure"] == pytest.approx(factor, rel=1e-4)
    assert found["model"] is None


def test_kinds_can_be_chosen_and_all_are_counted(make_grid) -> None:
    frame = make_grid({"d1": [1e6, 2e6, 2e6, 2.0**64 - 1]})
    table = make_table("trust/findings", frame, Selection())
    assert table.frame["what"].to_list() == ["sentinel", "tied latency", "too few models"]
    assert [row["what"] for row in _findings(frame, "too-few-models, sentinel")] == [
        "sentinel",
        "too few models",
    ]
    with pytest.raises(AnalysisError, match="what") as caught:
        _findings(frame, "sentinels")
    assert "'sentinel'" in caught.value.remedy


@pytest.mark.parametrize(("newest", "n_found"), [("mean", 1), ("minimum", 0)])
def test_a_sweep_is_held_against_older_ones_of_the_same_statistic(
    make_attempts, newest: str, n_found: int
) -> None:
    rows = [
        {"sweep_id": sweep, "started_utc": hour, "latency_p50_ns": value, "statistic": word}
        for sweep, hour, value, word in (("s1", 0, 1e6, "mean"), ("s2", 1, 9e6, newest))
    ]
    assert len(_findings(make_attempts(rows), "outlier-against-itself")) == n_found


def test_the_newest_release_is_held_against_older_ones_that_were_imported_later(
    make_attempts,
) -> None:
    rows = [
        {"sweep_id": sweep, "origin": "imported", "latency_p50_ns": ms * 1e6, "started_utc": hour}
        for sweep, ms, hour in ((LATE, 30.0, 0), (EARLY, 10.0, 1))
    ]
    (found,) = _findings(make_attempts(rows), "outlier-against-itself")
    assert found["figure"] == pytest.approx(3)
    assert f"exclude {LATE}" in str(found["command"])
