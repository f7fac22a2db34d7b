"""Table `scaling` with `part=memory`: parts of the peak by hand, and files by format."""

import pytest
from wording import has

from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

MIB = 2**20


def _rows(frame, name: str = "scaling/memory", **settings: str) -> list[dict[str, object]]:
    selection = Selection(settings=tuple(settings.items()))
    return make_table(name, frame, selection).frame.to_dicts()


def test_the_rest_is_the_peak_without_weights_and_state(make_attempts) -> None:
    step = {
        "workload": "decode@64", "weight_bytes": 4 * MIB, "state_bytes": MIB,
        "peak_memory_bytes": 7 * MIB, "load_peak_memory_bytes": 9 * MIB,
        "artifact_bytes": 5 * MIB, "artifact_format": "onnx",
    }  # fmt: skip
    (row,) = _rows(make_attempts([step]))
    figures = ("weights_mib", "state_mib", "rest_mib", "peak_memory_mib", "load_peak_memory_mib")
    assert [row[name] for name in figures] == [4, 1, 2, 7, 9]
    assert (row["file_mib"], row["file_format"], row["reason"]) == (5, "onnx", None)
    assert row["memory_metric"] == "vmhwm_growth"


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "mib"), [("fp32", 4), ("fp16", 2), ("int8", 1)])
def test_weights_of_images_are_parameters_in_their_precision(
    make_attempts, precision: str, mib: int
) -> None:
    facts = {"precision": precision, "parameters": MIB, "peak_memory_bytes": 10 * MIB}
    (row,) = _rows(make_attempts([facts]))
    assert (row["weights_mib"], row["state_mib"], row["rest_mib"]) == (mib, None, 10 - mib)


def test_a_peak_below_its_parts_has_no_rest(make_attempts) -> None:
    (row,) = _rows(make_attempts([{"parameters": 3 * MIB, "peak_memory_bytes": 10 * MIB}]))
    assert row["rest_mib"] is None
    assert has(row["reason"], "below", "weights")


def test_missing_facts_stay_null_with_the_reason(make_attempts) -> None:
    rows = [{"model": "a", "parameters": MIB, "peak_memory_bytes": None}]
    rows += [{"model": "b", "parameters": None, "peak_memory_bytes": MIB}]
    no_peak, no_weights = _rows(make_attempts(rows))
    assert no_peak["rest_mib"] is None
    assert has(no_peak["reason"], "no memory")
    assert no_weights["rest_mib"] is None
    assert has(no_weights["reason"], "parameters")


def test_files_stand_side_by_side_by_format(make_attempts) -> None:
    rows = [
        {"artifact_format": kind, "artifact_bytes": size * MIB, "parameters": MIB,
         "platform_key": f"x/{kind}"}
        for kind, size in (("onnx", 5), ("tflite", 6), ("pt2", 7))
    ]  # fmt: skip
    (row,) = _rows(make_attempts(rows), "scaling/files")
    assert [row[f"{kind}_mib"] for kind in ("onnx", "pt2", "tflite", "pte")] == [5, 7, 6, None]
    assert row["weights_mib"] == 4
