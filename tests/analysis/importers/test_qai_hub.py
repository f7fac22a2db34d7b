import json
from pathlib import Path

import pytest
from wording import has

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.qai_hub import FILES, parse_qai_hub
from fleetrank.analysis.importers.release import Release, Row, drop_reason

FOLDER = Path(__file__).parents[2] / "data" / "qai_hub"
CONTENT = {
    path.relative_to(FOLDER).as_posix(): path.read_bytes()
    for name in FILES
    for path in FOLDER.rglob(name)
}


@pytest.fixture(scope="module")
def old() -> Release:
    return parse_qai_hub(CONTENT)[0]


@pytest.fixture(scope="module")
def new() -> Release:
    return parse_qai_hub(CONTENT)[1]


def _row(release: Release, job: str, device: str | None = None) -> Row:
    (row,) = [
        row
        for row in release.rows
        if json.loads(str(row["runtime_settings"]))["job_id"] == job
        and device in {None, row["device_model"]}
    ]
    return row


def test_releases_come_oldest_first() -> None:
    versions = [release.version for release in parse_qai_hub(CONTENT)]
    assert versions == ["v0.12.1", "v0.46.1"]
    checkout = {"qai_hub_models/_version.py": b'__version__ = "0.9.0"\n'} | {
        f"qai_hub_models/models/{name.removeprefix('v0.46.1/')}": content
        for name, content in CONTENT.items()
        if name.startswith("v0.46.1/")
    }
    assert [release.version for release in parse_qai_hub(checkout)] == ["v0.9.0"]


def test_layers_on_the_backend_of_all_layers_are_the_placement(old, new) -> None:
    assert (_row(old, "jold")["backend_nodes"], _row(old, "jold")["graph_nodes"]) == (72, 72)
    stated = [row for row in new.rows if row.get("graph_nodes") is not None]
    for row in stated:
        layers = json.loads(str(row["runtime_settings"]))["layers"]
        assert row["backend_nodes"] == layers.get(row["backend"], 0)
        assert row["graph_nodes"] == sum(layers.values())
    assert any(row["backend_nodes"] < row["graph_nodes"] for row in stated)
    assert len(stated) < len(new.rows)


@pytest.mark.parametrize(
    ("counts", "unit", "expected"),
    [
        ("{npu: 3, cpu: 2, total: 5}", "NPU", (3, 5)),
        ("{cpu: 2, total: 2}", "NPU", (0, 2)),
        ("{npu: 3, total: 3}", "null", None),
        ("{npu: -3, gpu: 1.0e+300, total: 3}", "NPU", None),
        ("null", "NPU", None),
    ],
)
def test_only_a_stated_placement_is_read(counts: str, unit: str, expected) -> None:
    job = (
        "{job_id: j1, job_status: Passed, inference_time_milliseconds: 1.0, "
        f"primary_compute_unit: {unit}, layer_counts: {counts}}}"
    )
    text = (
        "precisions: {float: {components: {A: {performance_metrics: {D: {tflite: " + job + "}}}}}}"
    )
    (release,) = parse_qai_hub({"v1.0.0/a/perf.yaml": text.encode()})
    (row,) = release.rows
    found = (row.get("backend_nodes"), row.get("graph_nodes"))
    assert found == (expected or (None, None))


@pytest.mark.parametrize(
    ("word", "path", "expected"),
    [
        ("mixed_with_float", "qnn_dlc", ("int8", "qnn", "mixed_with_float", "dlc")),
        ("w16a16", "qnn_dlc", ("int8", "qnn", "w16a16", "dlc")),
        ("w4a16", "genie", ("int4", "qnn", "w4a16", "genie")),
        ("w4", "onnxruntime_genai", ("int4", "onnx", "w4", "genai")),
        ("q4_0", "llama_cpp_npu", ("int4", "llama.cpp", "q4_0", None)),
        ("q8_0", "llama_cpp_cpu", ("int8", "llama.cpp", "q8_0", None)),
        ("mxfp4", "llama_cpp_gpu", ("int4", "llama.cpp", "mxfp4", None)),
        ("w8a8", "voice_ai", ("int8", "qnn", None, "voice_ai")),
    ],
)
def test_every_word_for_a_precision_and_a_runtime_is_read(word: str, path: str, expected) -> None:
    job = (
        "job_id: j, job_status: Passed, inference_time_milliseconds: 1.0, primary_compute_unit: NPU"
    )
    text = "precisions: {%s: {components: {A: {performance_metrics: {D: {%s: {%s}}}}}}}"
    (release,) = parse_qai_hub({"v0.47.0/a/perf.yaml": (text % (word, path, job)).encode()})
    (row,) = release.rows
    assert drop_reason(row) is None
    options = json.loads(str(row["options"]))
    found = (row["precision"], row["runtime"], options.get("quantisation"), options.get("path"))
    assert found == expected


def test_the_older_layout_has_microseconds_and_bytes(old) -> None:
    row = _row(old, "jold")
    assert row["latency_p50_ns"] == 902_000
    assert row["peak_memory_bytes"] == 1_547_712
    assert row["precision"] == "fp16"
    assert row["os"] == "Android 13"
    assert (row["runtime"], row["backend"]) == ("tflite", "npu")
    assert json.loads(str(row["runtime_settings"]))["timestamp"] == "2024-08-27T11:54:11Z"


def test_the_newer_layout_has_milliseconds_and_mebibytes(new) -> None:
    row = _row(new, "jmirror", "SA7255P ADP")
    assert row["latency_p50_ns"] == 2_500_000
    assert row["peak_memory_bytes"] == 35 * 2**20
    assert row["memory_metric"] == "vendor_estimate"
    assert row["sample_kind"] == "vendor"
    assert row["runtime_version"] == "2.17.0"


def test_only_what_was_measured_is_imported(old, new) -> None:
    devices = {row["device_model"] for release in (old, new) for row in release.rows}
    assert not devices & {"Google Pixel 3", "Never Measured 9"}
    assert (len(old.rows), len(new.rows)) == (3, 10)


def test_two_to_the_64_and_the_word_null_are_no_latency(old) -> None:
    assert [drop_reason(row) for row in old.rows] == [None, "sentinel", "job not passed"]
    assert "latency 1.84467e+19 in job jstuck" in str(old.rows[1]["error_message"])
    assert old.rows[1]["latency_p50_ns"] is None


def test_a_mirror_is_an_alias_and_counts_once(new) -> None:
    assert new.aliases == (("QCS8275 (Proxy)", "SA7255P ADP"),)
    mirror = _row(new, "jmirror", "QCS8275 (Proxy)")
    assert drop_reason(mirror) == "mirror"
    assert str(mirror["error_message"]).endswith("job jmirror of SA7255P ADP again")
    assert drop_reason(_row(new, "jmirror", "SA7255P ADP")) is None


def test_what_only_the_alias_has_is_kept_under_the_name_kept(new) -> None:
    row = _row(new, "jonly")
    assert row["device_model"] == "SA7255P ADP"
    assert "device: published as QCS8275 (Proxy), an alias" in row["derived"]


def test_a_job_that_fell_back_is_on_a_platform_of_its_own(new) -> None:
    assert _row(new, "jgpu")["backend"] == "gpu"
    assert has(new.notes, "2", "10", "CPU", "GPU", "primary_compute_unit")
    assert has(new.notes, "1", "10", "NPU", "backend_nodes", "graph_nodes")


def test_a_memory_of_zero_is_unknown(new) -> None:
    row = _row(new, "jonly")
    assert row["peak_memory_bytes"] is None
    assert row["memory_metric"] is None


def test_failed_jobs_and_unknown_runtimes_are_dropped_with_their_reason(new) -> None:
    assert drop_reason(_row(new, "jfailed")) == "job not passed"
    assert drop_reason(_row(new, "jnew")) == "unknown runtime"


def test_mixed_quantisation_is_an_option_of_int8(new) -> None:
    row = _row(new, "jquantised")
    assert row["precision"] == "int8"
    assert row["options"] == '{"path":"dlc","quantisation":"w8a16"}'


def test_a_variant_keeps_its_own_name_and_accuracy(new) -> None:
    row = _row(new, "jinception")
    assert row["model"] == "qai-hub:inception_v3"
    assert "flops" not in row
    assert row["input_size"] == 224
    assert row["parameters"] == 23_900_000
    assert row["accuracy_top1"] == 69.5
    assert row["accuracy_source"] == "AI Hub numerics.yaml: float model on 1000 images of ImageNet"
    assert any("inception_v3 is kept apart: 224 px against 299" in note for note in new.notes)


def test_the_accuracy_of_each_tested_file_is_an_evaluation(new) -> None:
    # A file of w8a8 was tested and has no job here.
    assert {(one["device"], one["n_items"]) for one in new.evaluations} == {
        ("qai-hub-samsung-galaxy-s24", 1000)
    }
    found = {str(one["precision"]): one["quality"] for one in new.evaluations}
    assert found == {"fp16": 69.4, "w8a16": 69.1}, "which counts as int8 elsewhere"


def test_each_component_is_a_row_of_its_own(new) -> None:
    assert _row(new, "je")["model"] == "qai-hub:speech/Encoder"
    assert _row(new, "jd")["model"] == "qai-hub:speech/Decoder"
    assert any("each in a separate row: speech" in n for n in new.notes)


def test_proxies_that_are_no_alias_are_named() -> None:
    content = CONTENT["v0.46.1/inception_v3/perf.yaml"].replace(
        b"Samsung Galaxy S24", b"QCS8550 (Proxy)"
    )
    (release,) = parse_qai_hub({"v1.0/inception_v3/perf.yaml": content})
    assert any("related silicon" in note and "QCS8550" in note for note in release.notes)


def test_no_perf_file_and_no_yaml_are_refused() -> None:
    with pytest.raises(AnalysisError, match=r"no perf\.yaml"):
        parse_qai_hub({})
    with pytest.raises(AnalysisError, match=r"m/perf\.yaml is not YAML"):
        parse_qai_hub({"m/perf.yaml": b"a: [1"})


_LLM = """precisions:
  w4a16:
    components:
      Llama:
        performance_metrics:
          Snapdragon 8 Elite QRD:
            genie:
              llm_metrics:
                - context_length: 4096
                  time_to_first_token_range_milliseconds: {min: 88.195, max: 2822.25}
                  tokens_per_second: 25.0
                - context_length: 4096
                  time_to_first_token_range_milliseconds: {min: 220.4, max: 7053.5}
                  tokens_per_second: 10.0
                  prefill_tokens_per_second: 2322.9
                  desired_compute_unit: gpu
            llama_cpp_cpu:
              llm_metrics:
                - context_length: 1024
                  time_to_first_token_range_milliseconds: {min: 100.0, max: 300.0}
                  tokens_per_second: 20.0
            qnn_context_binary:
              time_to_first_token_range_milliseconds: {min: 125.936, max: 4029.952}
              tokens_per_second: 16.0
"""


def test_tokens_per_second_and_first_tokens_are_workloads() -> None:
    (release,) = parse_qai_hub({"v0.50.0/llama/perf.yaml": _LLM.encode()})
    found = [
        (row["workload"], row["backend"], row["latency_p50_ns"] / 1e6)
        for row in release.rows
        if row["status"] == "ok"
    ]
    assert found == [
        ("decode@4096", "npu", 40.0), ("prefill@128", "npu", 88.195),
        ("decode@4096", "gpu", 100.0), ("prefill@512", "gpu", 220.4),
        ("decode@1024", "cpu", 50.0),
        ("decode@4096", "npu", 62.5), ("prefill@128", "npu", 125.936),
    ]  # fmt: skip
    (lost,) = (row for row in release.rows if row["status"] != "ok")
    assert drop_reason(lost) == "no latency"
    assert any(has(note, "1 of prefill", "8 figures") for note in release.notes)
