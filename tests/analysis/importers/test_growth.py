"""Twice the input takes at most about twice the steps and the memory, in every importer."""

import contextlib
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from daily import daily

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.csv_map import parse_csv, parse_records
from fleetrank.analysis.importers.model_facts import parse_facts
from fleetrank.analysis.importers.qai_hub import parse_qai_hub
from fleetrank.analysis.importers.timm import ACCURACY_FILE, parse_timm
from fleetrank.analysis.labels import keys_in, labels_of
from fleetrank.analysis.statistics.pairs.pair_users import platform_shares

MAPPING = b"""source = {name = "lab", licence = "MIT", sample_kind = "tool_summary"}
columns = {model = "net", device = "dev", latency = "ms"}
units = {latency = "ms"}
constants = {tier = "edge", runtime = "tflite", precision = "fp32", batch = 1, statistic = "mean"}
"""
TIMM = "model,infer_img_size,infer_samples_per_sec,infer_batch_size"
BENCH = "benchmark-infer-amp-nchw-pt240-cpu-d"
JOB = """  - reference_device_info: {{name: d{}}}
    tflite: {{inference_time: 3, job_id: j, job_status: Passed, primary_compute_unit: NPU}}
"""
KEY = "dev{}/onnx/cpu/eager/fp32/b1/t1/afree/{{}}"


def table(head: str, line: str, n: int, n_columns: int | None = None) -> bytes:
    """As many further columns as lines."""
    columns = "".join(f",c{at}" for at in range(n if n_columns is None else n_columns))
    return f"{head}{columns}\n{''.join(line.format(at + 1) for at in range(n))}".encode()


def records(n: int, name: str = "v") -> bytes:
    beside = {f"k{at}": name for at in range(n)}
    lines = [{"net": f"a{at}", "dev": "d", "ms": 1} for at in range(n)]
    return json.dumps({**beside, "results": lines}).encode()


def jobs(n: int) -> bytes:
    entries = "".join(map(JOB.format, range(n)))
    return f"models:\n- name: a\n  performance_metrics:\n{entries}".encode()


CASES: dict[str, Callable[[int], object]] = {
    "csv": lambda n: parse_csv("t", table("net,dev,ms", "a,d,{}\n", n), MAPPING),
    "csv, full": lambda n: parse_csv("t", table("net,dev,ms,x", "a{0},d,1,{0}\n", n), MAPPING),
    "json": lambda n: parse_records({"t": records(n)}, MAPPING),
    "json, two": lambda n: parse_records({one: records(n, one) for one in "ab"}, MAPPING),
    "json, files": lambda n: parse_records({f"{i}": records(1, f"{i}") for i in range(n)}, MAPPING),
    "json, key": lambda n: parse_records({"t": json.dumps({
        "k" * n: {f"{i}": 1 for i in range(n)}, "results": [{"net": "a", "dev": "d", "ms": 1}],
    }).encode()}, MAPPING),
    "timm": lambda n: parse_timm({f"{BENCH}.csv": table(TIMM, "a{0},224,{0},1\n", n)}),
    "timms": lambda n: parse_timm({f"{BENCH}{i}.csv": table(TIMM, "a\n", 1) for i in range(n)}),
    "timm, accuracy": lambda n: parse_timm({
        f"{BENCH}.csv": table(TIMM, "a,224,3,1\n", 2),
        ACCURACY_FILE: table("model,img_size,top1", "a.t{},224,70\n", n),
    }),
    "qai-hub": lambda n: parse_qai_hub({"m/perf.yaml": jobs(n)}),
    "qai-hub, files": lambda n: parse_qai_hub({f"m{i}/perf.yaml": jobs(2) for i in range(n)}),
    "facts": lambda n: parse_facts("t", table("model,flops", "a{},9\n", n, 0)),
    "users": lambda n: platform_shares(
        [(KEY.format(i), f"dev{i}") for i in range(n)], {f"dve{i}": 1.0 for i in range(n)}
    ),
    "labels": lambda n: labels_of(keys_in(f"{KEY.format(i)} {'x/' * n}" for i in range(n))).names,
}  # fmt: skip


def cost(run: Callable[[int], object], n: int) -> tuple[int, int]:
    """Lines of Python that run, and the most bytes that they hold."""
    n_lines = 0

    def counted(_frame: FrameType, _event: str, _given: object) -> Any:
        nonlocal n_lines
        n_lines += 1
        return counted

    gc.disable()  # when it comes depends on what ran before
    tracemalloc.start()
    before = sys.gettrace()
    sys.settrace(counted)
    try:
        with contextlib.suppress(AnalysisError):
            run(n)
    finally:
        sys.settrace(before)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        gc.enable()
    return n_lines, peak


@pytest.mark.parametrize("case", daily(CASES, "csv", "labels", "users", "facts"))
def test_twice_the_input_takes_at_most_about_twice_as_much(case: str) -> None:
    CASES[case](20)
    # The second time, as a table of the interpreter may grow in the first.
    small, large = (min(cost(CASES[case], n) for _ in range(2)) for n in (50, 100))
    assert all(b < 2.4 * a for a, b in zip(small, large, strict=True)), (small, large)


def test_a_text_without_an_end_is_read_once() -> None:
    """A backtracking pattern takes hours for these."""
    for text in ("a" * 300_000, "a." * 150_000, "a/" * 150_000, f"{KEY.format(1)[:-1]} " * 9_000):
        assert keys_in([text]) == []
