"""Lists of records in JSON files, read through a mapping."""

import json
from pathlib import Path

import pytest
from wording import has

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.csv_map import EDGE_COMPAT, IMPORTER, parse_records
from fleetrank.analysis.importers.release import Row, drop_reason, require_complete
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.vocabulary import ErrorKind

MAPPING = """
[source]
name = "lab"
licence = "MIT"
sample_kind = "tool_summary"
records = "runs"
[columns]
model = "net"
device = "env.phone"
latency = "ms"
backend_nodes = "on"
graph_nodes = "of"
error_kind = "failure"
error_message = "text"
[units]
latency = "ms"
[constants]
tier = "edge"
runtime = "tflite"
precision = "fp32"
batch = 1
statistic = "median"
[wrong_output]
match = "false"
[failures]
compile_failed = "unsupported"
"""
RUN = {
    "ms": 2.5, "on": 3, "of": 4, "failure": None, "text": None, "match": True, "log": ["x"],
    "env": {"phone": "Pixel 8a"},
}  # fmt: skip


def parsed(*runs: object, key: str = "runs") -> tuple[Row, ...]:
    content = json.dumps({"net": "a", key: list(runs)}).encode()
    release = parse_records({"a.json": content}, MAPPING.encode())
    require_complete(release)
    return release.rows


def test_a_record_is_a_row_and_shares_the_facts_beside_its_list() -> None:
    first, second = parsed(RUN, RUN | {"ms": 5})
    assert (first["model"], second["model"]) == ("lab:a", "lab:a")
    assert (first["latency_p50_ns"], second["latency_p50_ns"]) == (2.5e6, 5e6)
    assert (first["device"], first["device_model"]) == ("lab-pixel-8a", "Pixel 8a")
    assert (first["backend_nodes"], first["graph_nodes"]) == (3, 4)
    assert str(first["source_ref"]).startswith("a.json sha256:")


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"failure": "compile_failed", "text": "no", "ms": None}, "unsupported", "unsupported: no"),
        ({"failure": "compile_failed"}, "unsupported", "no text is stated"),
        ({"failure": "unheard-of", "text": "\x1b[2J"}, "bad_output", "bad output: "),
        ({"match": False}, "verification_failed", "match is false"),
        ({"ms": None}, "bad_output", "no latency"),
        ({"on": 5}, "bad_output", "impossible placement"),
    ],
)
def test_a_failure_is_a_failed_row_with_its_kind(change, kind, text) -> None:
    (row,) = parsed(RUN | change)
    assert (row["status"], row["error_kind"]) == ("failed", kind)
    assert kind in set(ErrorKind)
    assert has(str(row["error_message"]), text)
    assert str(row["error_message"]).isprintable()
    assert row["latency_p50_ns"] is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[", "not JSON"),
        (b"[" * 100_000, "deep"),
        (b"\xff", "UTF-8"),
        (b"{}", "no list of records 'runs'"),
        (b'{"runs": [1]}', "no list of records 'runs'"),
        (b"1", "no list of records 'runs'"),
        (b'{"runs": [{"ms": ' + b"9" * 5000 + b"}]}", "digits"),
    ],
)
def test_a_file_that_holds_no_records_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(BadFileError) as raised:
        parse_records({"a.json": content}, MAPPING.encode())
    assert said.lower() in raised.value.message.lower()


def test_a_missing_column_is_named_and_a_hostile_key_is_a_column_only() -> None:
    lacking = {name: value for name, value in RUN.items() if name != "env"}
    with pytest.raises(AnalysisError, match=r"no column env\.phone"):
        parsed(lacking)
    with pytest.raises(AnalysisError, match="no JSON file"):
        parse_records({}, MAPPING.encode())
    (row,) = parsed({"\0line": "x", "\0rest": "x", "\0file": "x"} | RUN)
    assert row["status"] == "ok"
    assert str(row["source_ref"]).startswith("a.json sha256:")


def test_a_list_in_one_json_file_is_imported_as_a_table_is(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([RUN | {"net": "a"}]))
    (release,) = IMPORTER.read(path, MAPPING.encode())
    assert drop_reason(release.rows[0]) is None


def test_edge_compat_has_runs_on_devices_and_in_browsers(tmp_path: Path) -> None:
    """The layout of version 0.1.0."""
    of_device = {
        "accelerator": "npu_qnn", "latency_p50_ms": 120.0, "failure_class": None, "error": None,
        "output_match": None, "delegated_ops": 536, "total_ops": 540,
        "env": {"device": "Galaxy S26", "runtime_version": "2.2.0", "os_build": "Android 16"},
    }  # fmt: skip
    failed = of_device | {"failure_class": "process_crashed", "latency_p50_ms": None}
    in_browser = {
        "backend": "wasm_xnnpack", "latency_p50_ms": 25.0, "failure_class": None, "error": None,
        "output_match": False,
        "env": {"machine_label": "mac", "litertjs_core_version": "2.5.3", "os": "macOS"},
    }  # fmt: skip
    for folder, runs in (("device_runs", [of_device, failed]), ("sweep", [in_browser])):
        path = tmp_path / "data" / folder / "2.2.0" / "a.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"model_id": "a", "device": "s26", "results": runs}))
    devices, browsers = EDGE_COMPAT.read(tmp_path, b"")
    kinds = [row.get("error_kind") for row in (*devices.rows, *browsers.rows)]
    assert kinds == [None, "crashed", "verification_failed"]
    assert (devices.rows[0]["backend_nodes"], devices.rows[0]["graph_nodes"]) == (536, 540)
    assert devices.rows[0]["runtime_version"] == "2.2.0"
    for release in (devices, browsers):
        require_complete(release)
