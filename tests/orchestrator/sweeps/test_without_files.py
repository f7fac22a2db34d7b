"""Simulated devices open no file, so a sweep over them exports none where the cost is known."""

import json

import pytest
from wording import has
from world import World

SPEC = """name: t
models: [resnet18]
runtimes: [onnx, tflite]
devices: [sim-a]
repeats: 1
measure: {min_warmup_s: 0.0, min_runs: 20, max_time_s: 0.5}
"""


def test_no_file_is_built_where_the_cards_state_the_cost(folder) -> None:
    spec = folder.root / "sweeps" / "t.yaml"
    spec.write_text(SPEC.replace("[sim-a]", "[sim-a, local-cpu]"))
    assert has(folder.call("sweep", "plan", "t").stdout, "0 ready", "2 to build"), "a CPU opens it"
    spec.write_text(SPEC)
    plan = folder.call("sweep", "plan", "t")
    assert plan.returncode == 0, plan.stderr
    assert has(plan.stdout, "not needed", "0 ready", "0 to build")
    assert "exporting" not in plan.stdout
    assert folder.call("sweep", "run", "t", "--inline").returncode == 0
    assert not [path for path in (folder.root / "artifacts").rglob("*") if path.is_file()]


@pytest.fixture
def measured(world: World) -> list[dict[str, object]]:
    rows = [row for row in world.rows("failures") if row["model"] != "broken"]
    assert len(rows) == 2 * 2 * 2 * (1 + 3)
    assert {row["status"] for row in rows} == {"ok"}
    return rows


def test_costs_come_from_the_cards(measured) -> None:
    assert {row["artifact_sha256"] for row in measured} == {None}
    assert {row["artifact_bytes"] for row in measured} == {None}
    (vision,) = {
        (row["macs"], row["parameters"], row["flops_method"])
        for row in measured
        if row["model"] == "resnet18"
    }
    assert vision == (1_814_073_344, 11_689_512, "counted")


def test_workloads_of_a_decoder_differ_as_their_work_does(measured) -> None:
    of = {
        str(row["workload"]): row
        for row in measured
        if row["model"] == "stories260k" and row["runtime"] == "onnx"
    }
    assert of["decode@128"]["macs"] < of["prefill@128"]["macs"] / 50
    assert of["decode@128"]["latency_p50_ns"] < of["prefill@128"]["latency_p50_ns"]
    generated = of["generate@64+64"]
    assert generated["sample_kind"] == "per_token"
    # 63 steps follow each prompt, and a step costs what one of decode@128 does.
    prompts = generated["ttft_samples_ns"]
    assert len(generated["samples_ns"]) == 63 * len(prompts)
    assert generated["latency_p50_ns"] == of["decode@128"]["latency_p50_ns"]
    assert of["prefill@128"]["ttft_samples_ns"] is None


def test_one_model_can_be_run_in_two_workloads_and_its_tables_keep_them_apart(folder) -> None:
    done = folder.call(
        "run", "stories260k", "--devices", "sim-a", "--workload", "decode@64", "--workload",
        "prefill@64", "--repeats", "5", "--inline", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cells = {row["workload"]: row for row in json.loads(done.stdout)["cells"]}
    assert set(cells) == {"decode@64", "prefill@64"}
    for row, tokens in ((cells["decode@64"], 1), (cells["prefill@64"], 64)):
        assert row["tokens_per_s"] == pytest.approx(tokens / (row["latency_ms"] / 1e3))
    unnamed = folder.call("report", "show", "latency", "--include-simulated")
    assert unnamed.returncode == 2
    assert "--workload prefill@64" in unnamed.stderr
    table = folder.call(
        "report", "show", "tokens", "--include-simulated", "--workload", "decode@64", "--json"
    )
    (shown,) = json.loads(table.stdout)["rows"]
    assert shown["weights_mib"] > 0
    assert shown["decode_tokens_per_s"] == pytest.approx(cells["decode@64"]["tokens_per_s"])
