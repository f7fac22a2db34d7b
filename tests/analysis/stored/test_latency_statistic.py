"""What the latency of an older row is, where its facts leave no doubt."""

import polars as pl
import pytest

from fleetrank.analysis.stored.latency_statistic import with_statistic

_MEAN, _MEDIAN = (f'{{"summary_statistic":"{word}"}}' for word in ("mean", "median"))
_COLUMNS = (
    "sample_kind", "origin", "source", "runtime", "runtime_settings", "latency_p50_ns", "statistic",
)  # fmt: skip


def _frame(rows: list[tuple[object, ...]]) -> pl.DataFrame:
    types = [pl.String()] * 5 + [pl.Float64(), pl.String()]
    return pl.DataFrame(rows, schema=dict(zip(_COLUMNS, types, strict=True)), orient="row")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("per_inference", "measured", None, "onnx", "{}", 1.0, None), "median"),
        (("per_inference", "simulated", None, "onnx", None, 1.0, None), "median"),
        (("per_inference", "imported", "lab", "onnx", None, 1.0, None), None),
        (("tool_summary", "measured", None, "tflite", _MEAN, 1.0, None), "mean"),
        (("tool_summary", "virtual", None, "tflite", _MEDIAN, 1.0, None), "median"),
        (("tool_summary", "measured", None, "tflite", "{}", 1.0, None), None),
        (("tool_summary", "measured", None, "onnx", None, 1.0, None), "median"),
        (("tool_summary", "imported", "lab", "onnx", _MEAN, 1.0, None), None),
        (("throughput_derived", "imported", "lab", "torch", None, 1.0, None), "mean"),
        (("vendor", "imported", "qai-hub", "tflite", None, 1.0, None), "minimum"),
        (("vendor", "imported", "lab", "tflite", None, 1.0, None), None),
        (("per_inference", "measured", None, "onnx", "{}", None, None), None),
        (("per_inference", "measured", None, "onnx", "{}", 1.0, "minimum"), "minimum"),
        ((None, None, None, None, None, 1.0, None), None),
    ],
)
def test_the_statistic_of_an_older_row_is_known_only_where_it_is_certain(row, expected) -> None:
    found = with_statistic(_frame([row]).lazy()).collect()
    assert found["statistic"].to_list() == [expected]
