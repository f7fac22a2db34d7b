"""The summary of a run: each field is the stored row's, and null where nothing was measured."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from daily import daily

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.summary.summary import FIELDS, run_summaries
from fleetrank.analysis.statistics.summary.summary_quality import evaluated
from fleetrank.analysis.statistics.summary.summary_table import field_rows, summary_table
from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.selection import Selection
from fleetrank.foundation.workload import Workload
from fleetrank.orchestrator.store.side import append_side

Make = Callable[[Iterable[dict[str, object]]], pl.LazyFrame]
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def _text(workload: str, batch: int, ms: float, **more: object) -> dict[str, object]:
    length = Workload.parse(workload).length or 0
    platform = f"xeon/onnx/cpu/eager/fp32/b{batch}/t1/afree/{{}}"
    row = {
        "model": "writer", "family": "decoder", "platform_key": platform, "batch": batch,
        "workload": workload, "cell_key": f"{workload} b{batch}", "latency_p50_ns": ms * 1e6,
        "latency_p95_ns": ms * 2e6, "parameters": 1000, "flops": length * 2000,
        "git_commit": "abc", "prompt_tokens": length, "artifact_bytes": 4200,
    }  # fmt: skip
    return row | more


def _only(frame: pl.LazyFrame, **known: dict[str, int | float]) -> dict[str, object]:
    (record,) = run_summaries(Session(frame, Selection()), known).to_dicts()
    return record


@pytest.mark.slow
def test_a_text_model_has_its_two_prompts_its_step_and_its_rate(make_attempts: Make) -> None:
    rows = [
        _text("prefill@128", 1, 5.0),
        _text("prefill@512", 1, 30.0, peak_memory_bytes=700, reserved_memory_bytes=None),
        _text("prefill@512", 32, 800.0, peak_memory_bytes=9000, reserved_memory_bytes=9900),
        _text("decode@128", 1, 1.0),
        _text("decode@512", 1, 2.0, state_bytes=64),
    ]
    found = _only(make_attempts(rows))
    assert found["seq128_latency_ms"] == 5.0
    assert found["seq128_latency_p95_ms"] == 10.0
    assert found["seq512_latency_ms"] == 30.0
    assert found["tokens_per_s"] == pytest.approx(32 * 512 / 0.8)
    assert (found["step_latency_ms"], found["step_context"]) == (2.0, 512)
    assert (found["peak_memory_bytes"], found["batch_peak_memory_bytes"]) == (700, 9000)
    assert found["batch_reserved_memory_bytes"] == 9900
    assert (found["state_bytes"], found["flops"], found["artifact_bytes"]) == (64, 1_024_000, 4200)
    assert (found["git_commit"], found["seed"], found["sweep_ids"]) == ("abc", 7, ["s1"])
    assert found["platform"] == "xeon/onnx/cpu/eager/fp32/b*/t1/afree/{}"
    for name in ("image_latency_ms", "images_per_s", "perplexity", "train_step_ms", "layers"):
        assert found[name] is None


PLAIN = {"parameters": 1000, "weight_bytes": 4000, "artifact_bytes": 4200}
EXTENDED = {"parameters": 1300, "weight_bytes": 5200, "artifact_bytes": 5500}
LAST = datetime(2026, 1, 9, tzinfo=UTC)


@pytest.mark.slow
@pytest.mark.parametrize("at", daily([None, LAST], LAST))
def test_sizes_are_of_the_model_without_a_memory(make_attempts: Make, at: datetime | None) -> None:
    when = {} if at is None else {"started_utc": at}
    rows = [
        _text("segment@64+k8+n16", 1, 9.0, **EXTENDED, **when),
        _text("segment@64+k8+n0", 1, 8.0, **PLAIN | {"artifact_bytes": 4100}, **when),
        _text("train@2x64", 2, 90.0, **PLAIN | {"artifact_bytes": 9900}, **when),
        _text("prefill@128", 1, 5.0, **PLAIN),
        _text("decode@512", 1, 5.0, **PLAIN | {"artifact_bytes": 4300}),
        _text("prefill@512", 32, 5.0, **PLAIN | {"artifact_bytes": 4400}),
    ]
    found = _only(make_attempts(rows))
    assert {name: found[name] for name in PLAIN} == PLAIN
    without = {name: _only(make_attempts(rows[:2]))[name] for name in PLAIN}
    assert without == PLAIN | {"artifact_bytes": 4100}
    assert _only(make_attempts(rows[:1]))["parameters"] == 1300


def test_an_image_model_has_nulls_where_a_field_is_of_text(make_attempts: Make) -> None:
    rows = [
        {"latency_p50_ns": 4e6 + repeat * 1e5, "repeat": repeat, "batch": 1, "flags": ["drift"],
         "accuracy_top1": 71.5, "peak_memory_bytes": 10**6}
        for repeat in range(5)
    ]  # fmt: skip
    rows.append({"latency_p50_ns": 64e6, "batch": 32, "peak_memory_bytes": 2 * 10**6})
    found = _only(
        make_attempts([row | {"platform_key": f"d/onnx/b{row['batch']}/t1"} for row in rows])
    )
    assert found["image_latency_ms"] == pytest.approx(4.2)
    low, high = found["image_latency_low_ms"], found["image_latency_high_ms"]
    assert 3.9 < low < 4.2 < high < 4.5
    assert low * high == pytest.approx(4.2**2)
    assert found["images_per_s"] == pytest.approx(500)
    assert (found["peak_memory_bytes"], found["batch_peak_memory_bytes"]) == (10**6, 2 * 10**6)
    assert (found["accuracy_top1"], found["flags"], found["n_repeats"]) == (71.5, ["drift"], 1)
    names = [one.name for one in FIELDS if one.name.startswith(("seq", "step", "tokens", "text"))]
    assert names
    assert all(found[name] is None for name in names)


def test_unlike_weights_are_runs_of_their_own(make_attempts: Make) -> None:
    rows = [
        {"weights_id": name, "cell_key": name, "latency_p50_ns": ns}
        for name, ns in (("seeded-0", 1e6), ("file-1", 2e6))
    ]
    found = run_summaries(Session(make_attempts(rows), Selection()))
    by_weights = dict(found.select("weights_id", "image_latency_ms").iter_rows())
    assert by_weights == {"seeded-0": 1.0, "file-1": 2.0}


@pytest.mark.slow
def test_the_architecture_is_of_the_card_with_the_rows_checksum(make_attempts: Make) -> None:
    frame = make_attempts([_text("prefill@128", 1, 5.0, card_sha256="one")])
    shape = {"layers": 6, "embedding_ratio": 0.6}
    assert _only(frame, one=shape)["layers"] == 6
    assert _only(frame, one=shape)["embedding_ratio"] == 0.6
    assert _only(frame, other=shape)["layers"] is None


def _evaluation(task: str, metric: str, quality: float, **more: object) -> dict[str, object]:
    row = dict.fromkeys(EVALUATIONS.schema) | {
        "evaluation_id": task, "model": "writer", "card_sha256": "c", "precision": "fp32",
        "weights": "checkpoint", "task": task, "quality_metric": metric, "quality": quality,
        "data": f"{task}.txt", "finished_utc": NOW, "runtime": "onnx", "flags": [],
    }  # fmt: skip
    return row | more


def _quality(*rows: dict[str, object], weights_id: str = "seeded-0") -> dict[str, object]:
    run = {
        "model": "writer", "card_sha256": "c", "precision": "fp32", "runtime": "onnx",
        "weights_id": weights_id,
    }  # fmt: skip
    return evaluated(pl.DataFrame(rows, schema=EVALUATIONS.schema), run).fields


SEEDED = {"weights": "seeded", "flags": ["seeded"]}


BENCH = [_evaluation(task, "acc", value) for task, value in
         (("sst2", 80.0), ("rte", 60.0), ("boolq", 70.0), ("mrpc", 50.0))]  # fmt: skip


def test_quality_is_of_the_newest_evaluation_of_each_task() -> None:
    later = datetime(2026, 1, 3, tzinfo=UTC)
    found = _quality(
        _evaluation("ppl", "perplexity", 20.0),
        _evaluation("ppl", "bits_per_byte", 1.1),
        _evaluation("ppl", "perplexity", 18.0, evaluation_id="2", finished_utc=later, data="b"),
        _evaluation("images", "top1", 70.0, card_sha256="another card"),
    )
    assert (found["perplexity"], found["bits_per_byte"], found["text"]) == (18.0, None, "b")
    assert found["top1"] is None
    assert found["quality_weights"] == "checkpoint"


@pytest.mark.parametrize("other", [{"runtime": "torch"}, {"precision": "fp16"}, {"model": "b"}])
def test_an_evaluation_counts_only_where_it_ran(other: dict[str, str]) -> None:
    found = _quality(_evaluation("ppl", "perplexity", 20.0, **other))
    assert (found["perplexity"], found["quality_weights"]) == (None, None)


READINGS = [  # the best one last
    {"strategy": "hmt+k16+n8", "window_tokens": 512},
    {"strategy": "window", "window_tokens": 512, "stride_tokens": 256},
    {"strategy": "vanilla", "window_tokens": 512, "item_limit": 3},
    {"strategy": "vanilla", "window_tokens": 128},
    {"strategy": "vanilla", "window_tokens": 512},
    {"strategy": "vanilla", "window_tokens": 512, "finished_utc": LAST},
]


def test_a_run_without_a_card_has_no_evaluation() -> None:
    run = {"model": "writer", "card_sha256": None, "precision": "fp32", "runtime": "onnx"}
    rows = pl.DataFrame([_evaluation("images", "top1", 70.0)], schema=EVALUATIONS.schema)
    assert evaluated(rows, run | {"weights_id": None}).fields["top1"] is None


@pytest.mark.slow
@pytest.mark.parametrize("n_known", range(1, len(READINGS) + 1))
@pytest.mark.parametrize("order", [1, -1])
def test_of_several_readings_of_a_text_one_is_chosen_by_rule(n_known: int, order: int) -> None:
    # Of a limited reading every other one is better.
    ranked = [READINGS[2], *READINGS[:2], *READINGS[3:]][:n_known]
    rows = [
        _evaluation("ppl", "perplexity", float(at), **{"evaluation_id": str(at)} | reading)
        for at, reading in enumerate(ranked)
    ]
    found, best = _quality(*rows[::order]), ranked[-1]
    assert found["perplexity"] == float(n_known - 1)
    assert found["quality_strategy"] == best["strategy"]
    assert found["quality_window_tokens"] == best["window_tokens"]
    assert found["quality_stride_tokens"] == best.get("stride_tokens")


def test_the_mean_of_smallbench_needs_all_four_tasks_and_all_items() -> None:
    assert _quality(*BENCH)["smallbench_acc"] == 65.0
    assert _quality(*BENCH[:3])["smallbench_acc"] is None
    limited = [*BENCH[:3], BENCH[3] | {"item_limit": 10}]
    assert _quality(*limited)["smallbench_acc"] is None
    assert _quality(*limited)["mrpc_acc"] == 50.0


def test_the_quality_of_seeded_weights_is_never_that_of_others() -> None:
    seeded = _evaluation("ppl", "perplexity", 30_000.0, **SEEDED)
    trained = _evaluation("ppl", "perplexity", 20.0, evaluation_id="t")
    assert _quality(seeded)["perplexity"] == 30_000.0
    assert _quality(seeded)["quality_weights"] == "seeded"
    assert _quality(seeded, weights_id="file-1")["perplexity"] is None
    assert _quality(seeded, trained)["perplexity"] == 20.0


@pytest.mark.slow
def test_figures_of_random_weights_are_flagged_and_noted(
    make_attempts: Make, tmp_path: Path
) -> None:
    append_side(
        tmp_path,
        EVALUATIONS,
        [_evaluation("ppl", "perplexity", 30_000.0, **SEEDED, strategy="vanilla")],
    )
    rows = [
        _text("decode@128", 1, 5.0, card_sha256="c", precision="fp32", runtime=runtime,
              platform_key=f"xeon/{runtime}/cpu/eager/fp32/b1/t1/afree/{{}}",
              weights_id="seeded-0", flags=["drift"])
        for runtime in ("onnx", "torch")
    ]  # fmt: skip
    table = summary_table(Session(make_attempts(rows), Selection(), results=tmp_path))
    shown = table.frame.sort("platform").select("perplexity", "quality_strategy", "flags").rows()
    assert shown == [(30_000.0, "vanilla", ["drift", "seeded"]), (None, None, ["drift"])]
    (note,) = [note for note in table.notes if "random weights" in note]
    assert note.startswith("1 run ")


@pytest.mark.slow
def test_the_table_shows_runs_and_its_fields_are_rows(make_attempts: Make) -> None:
    session = Session(
        make_attempts([_text("prefill@128", 1, 5.0), {"latency_p50_ns": 3e6}]), Selection()
    )
    runs = summary_table(session).frame
    assert runs["model"].to_list() == ["a", "writer"]
    assert runs["image_latency_ms"].to_list() == [3.0, None]
    assert "tokens_per_s" not in runs.columns
    of_writer = run_summaries(session).filter(model="writer")
    shown = dict(field_rows(of_writer).select("field", "value").iter_rows())
    assert len(shown) == len(FIELDS) - 2 >= 40
    assert (shown["seq128_latency_ms"], shown["perplexity"]) == ("5.000", None)
