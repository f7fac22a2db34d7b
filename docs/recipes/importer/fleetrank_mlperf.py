"""The source `mlperf`: `mlperf_log_summary.txt` files of MLPerf Inference's LoadGen.

It reads `SYSTEM/BENCHMARK/SCENARIO/performance/run_N/mlperf_log_summary.txt`, the folders that the
rules of submission prescribe. Of the scenarios only SingleStream has one sample in flight, so that
its median is a latency as fleetrank means it; the others are stored as dropped rows.
"""

import re
from pathlib import Path

from fleetrank.analysis.importers.importer import Importer, read_tables
from fleetrank.analysis.importers.release import (
    LATENCY_RANGE_NS,
    Release,
    Row,
    device_names,
    drop,
    file_reference,
    is_possible,
    load_equivalences,
    named,
    read_number,
)
from fleetrank.foundation.errors import BadFileError

SOURCE = "mlperf"
SUMMARY = "mlperf_log_summary.txt"
LATENCIES = {
    "latency_p50_ns": "50.00 percentile latency (ns)",
    "latency_mean_ns": "Mean latency (ns)",
    "latency_p90_ns": "90.00 percentile latency (ns)",
    "latency_p99_ns": "99.00 percentile latency (ns)",
}
_LINE = re.compile(r"^ *([^:\n]+?) *: *(.+?) *$", re.MULTILINE)
_VERSION = re.compile(r"v\d+(\.\d+)*")
_LICENCE = "Apache-2.0, MLCommons; name MLPerf results as its policy on results says"


def read_summary(content: bytes) -> dict[str, str]:
    """The values of a summary by their labels; of a label that is given twice, the first."""
    found: dict[str, str] = {}
    for label, value in _LINE.findall(content.decode("utf-8", "replace")):
        found.setdefault(label, value)
    return found


def _row(name: str, content: bytes, devices: dict[str, str]) -> Row:
    system, benchmark, _scenario, _performance, run, _ = name.split("/")[-6:]
    values = read_summary(content)
    row: Row = {
        "status": "ok",
        "device": devices[system],
        "device_model": system,
        "tier": None,
        "runtime": None,
        "backend": None,
        "mode": "eager",
        "precision": None,
        "batch": 1,
        "options": "{}",
        "source": SOURCE,
        "source_ref": file_reference(f"{system}/{benchmark}/{run}", content),
        "sample_kind": "tool_summary",
        "statistic": "median",
    }
    for column, label in LATENCIES.items():
        figure = read_number(values.get(label, ""))
        row[column] = float(figure) if is_possible(figure, LATENCY_RANGE_NS) else None
    row = named(row, benchmark, load_equivalences(SOURCE))
    scenario, result = values.get("Scenario", "not stated"), values.get("Result is", "not stated")
    if scenario.replace(" ", "") != "SingleStream":
        return drop(row, "several samples in flight", f"scenario {scenario}")
    if result != "VALID":
        return drop(row, "not a valid result", f"LoadGen says {result}")
    if row["latency_p50_ns"] is None:
        return drop(row, "no latency", f"the summary has no {LATENCIES['latency_p50_ns']}")
    return row


def _read(path: Path, _mapping: bytes) -> tuple[Release, ...]:
    files = read_tables(path, f"**/performance/run_*/{SUMMARY}")
    if not files or any(name.count("/") < 5 for name in files):
        raise BadFileError(
            f"{path} has no SYSTEM/BENCHMARK/SCENARIO/performance/run_N/{SUMMARY}",
            "name the folder `results` of a submitter",
        )
    devices = dict(device_names(SOURCE, (name.split("/")[-6] for name in files)))
    rows = tuple(_row(name, content, devices) for name, content in files.items())
    stated = _VERSION.search(str(path.resolve()))
    return (
        Release(
            source=SOURCE, version=stated[0] if stated else "unknown", licence=_LICENCE, rows=rows
        ),
    )


IMPORTER = Importer(read=_read)
