"""Records of llama.cpp's `llama-bench`: prompts and steps are different workloads."""

import json
from pathlib import Path

import pytest

from fleetrank.analysis.importers.csv_map import parse_records
from fleetrank.analysis.importers.llama_bench import IMPORTER
from fleetrank.analysis.importers.release import Row, require_complete
from fleetrank.foundation.errors import BadFileError

# From tools/llama-bench/README.md of llama.cpp, build 5163.
RUN = {
    "build_commit": "8cf427ff", "cpu_info": "AMD Ryzen 7 7800X3D 8-Core Processor",
    "gpu_info": "NVIDIA GeForce RTX 4080", "backends": "CUDA",
    "model_filename": "models/Qwen2.5-7B-Instruct-Q4_K_M.gguf",
    "model_type": "qwen2 7B Q4_K - Medium", "model_n_params": 7615616512, "n_batch": 2048,
    "n_threads": 8, "type_k": "f16", "n_gpu_layers": 99, "flash_attn": False, "n_prompt": 512,
    "n_gen": 0, "n_depth": 0, "avg_ns": 72135640, "avg_ts": 7100.0, "samples_ns": [74601900],
}  # fmt: skip
STEPS = {"n_prompt": 0, "n_gen": 128, "avg_ns": 1076767880}


@pytest.fixture
def imported(tmp_path: Path):
    def read(*changes: dict[str, object], lines: bool = False) -> tuple[Row, ...]:
        runs = [json.dumps(RUN | change) for change in changes]
        path = tmp_path / ("runs.jsonl" if lines else "runs.json")
        path.write_text("\n".join(runs) if lines else f"[{','.join(runs)}]", encoding="utf-16")
        (release,) = IMPORTER.read(path, b"")
        require_complete(release)
        return release.rows

    return read


def test_a_prompt_and_the_steps_after_it_are_two_workloads(imported) -> None:
    prompt, steps, deep = imported({}, STEPS, STEPS | {"n_depth": 512})
    assert len(imported({}, STEPS, lines=True)) == 2
    assert (prompt["workload"], prompt["latency_p50_ns"]) == ("prefill@512", 72135640)
    assert (steps["workload"], steps["tokens_per_inference"]) == ("generate@1+128", 1)
    assert steps["latency_p50_ns"] == pytest.approx(1e9 / 118.881588, rel=1e-4)
    assert (deep["workload"], deep["options"]) == ("generate@512+128", "{}")
    assert prompt["model"] == "llama-bench:Qwen2.5-7B-Instruct-Q4_K_M"
    assert (prompt["device_model"], prompt["tier"]) == (RUN["gpu_info"], "gpu")
    assert (prompt["precision"], prompt["threads"], prompt["statistic"]) == ("int4", 8, "mean")


@pytest.mark.parametrize(
    ("change", "column", "value"),
    [
        ({"n_depth": 512}, "options", '{"n_depth":"512"}'),
        ({"type_k": "q8_0", "poll": 9}, "options", '{"poll":"9","type_k":"q8_0"}'),
        ({"n_gpu_layers": 0}, "tier", "cpu"), ({"gpu_info": ""}, "device_model", RUN["cpu_info"]),
        ({"model_type": "llama 7B all F32"}, "precision", "fp32"),
        ({"model_type": "qwen2 7B Q6_K"}, "precision", None),
        ({"n_gen": 128}, "status", "failed"), ({"avg_ns": None}, "status", "failed"),
        ({"n_prompt": "x"}, "status", "failed"), ({"n_prompt": 10**9}, "status", "failed"),
        ({"model_filename": "7B/ggml-model-f16.gguf", "model_type": "x"}, "model", "llama-bench:x"),
        ({"model_filename": "C:\\a\\b.gguf"}, "model", "llama-bench:b"),
    ],
)  # fmt: skip
def test_what_a_record_states_is_in_its_row(imported, change, column, value) -> None:
    (row,) = imported(change)
    assert row[column] == value


def test_a_mapping_of_the_user_states_a_workload() -> None:
    mapping = b"""source = {name = "lab", licence = "MIT", sample_kind = "tool_summary"}
columns = {model = "model_filename", device = "gpu_info", latency = "avg_ns"}
units = {latency = "ns"}
where = {n_gen = "0", n_prompt = "512"}
constants.workload = "prefill@512"
constants.precision = "fp16"
constants.tier = "edge"
constants.runtime = "llama_cpp"
constants.batch = 1
"""
    content = json.dumps([RUN, RUN | STEPS]).encode()
    (row,) = parse_records({"a.json": content}, mapping).rows
    assert (row["workload"], row["prompt_tokens"], row["status"]) == ("prefill@512", 512, "ok")
    with pytest.raises(BadFileError, match="unknown workload 'pp512'"):
        parse_records({"a.json": content}, mapping.replace(b"prefill@512", b"pp512"))
