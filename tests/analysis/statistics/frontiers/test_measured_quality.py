"""The objective `quality` comes from evaluations in one metric on the same data."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.frontiers.frontier_transfer import pareto_table
from fleetrank.analysis.statistics.frontiers.measured_quality import measured_quality
from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.selection import Selection
from fleetrank.orchestrator.store.side import append_side

BPB = {"task": "ppl", "quality_metric": "bits_per_byte", "data": "own.txt", "data_sha256": "a"}
WORKLOAD = {"workload": "decode@128", "prompt_tokens": 1, "context_tokens": 128}


def evaluated(folder: Path, *rows: dict[str, object]) -> None:
    facts = [
        {"evaluation_id": f"e{number}", "strategy": "vanilla", "flags": []}
        | {"finished_utc": datetime(2026, 1, 1 + number, tzinfo=UTC)}
        | row
        for number, row in enumerate(rows)
    ]
    append_side(folder, EVALUATIONS, facts)


def session_of(folder: Path, frame: pl.LazyFrame, **settings: str) -> Session:
    return Session(frame, Selection(settings=tuple(settings.items())), results=folder)


@pytest.fixture
def frame(make_grid) -> pl.LazyFrame:
    # On d1 the models are faster in the order m0, m1, m2; on d2 m2 is the fastest.
    text = dict.fromkeys(("d1", "d2"), WORKLOAD)
    return make_grid({"d1": [1, 2, 3], "d2": [2, 3, 1]}, flops=[10, 20, 30], **text)


@pytest.mark.slow
def test_the_frontier_of_text_weighs_quality_against_latency(
    tmp_path: Path, frame: pl.LazyFrame
) -> None:
    evaluated(tmp_path, *({"model": f"m{n}", "quality": 1.5 - n / 10} | BPB for n in range(3)))
    table = pareto_table(session_of(tmp_path, frame))
    row = table.frame.filter(pl.col("source").str.starts_with("d1"), level="pair").to_dicts()[0]
    # Each model that is slower on d1 is better; on d2 the best model is also the fastest.
    assert (row["n_source"], row["n_target"], row["precision"]) == (3, 1, pytest.approx(1 / 3))
    assert "Objectives: quality, latency." in table.notes
    assert any("bits_per_byte of ppl on own.txt" in note for note in table.notes)


@pytest.mark.slow
def test_a_metric_where_more_is_better_turns_the_order(tmp_path: Path, frame: pl.LazyFrame) -> None:
    accuracy = BPB | {"task": "sst2", "quality_metric": "acc"}
    evaluated(tmp_path, *({"model": f"m{n}", "quality": 50.0 + n} | accuracy for n in range(3)))
    assert measured_quality(session_of(tmp_path, frame)).costs.tolist() == [-50, -51, -52]


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        {"data_sha256": "b"},
        {"quality_metric": "perplexity"},
        {"strategy": "window"},
        {"flags": ["seeded"]},
        {"item_limit": 10},
    ],
)
def test_figures_that_do_not_compare_are_never_mixed(
    tmp_path: Path, frame: pl.LazyFrame, other: dict[str, object]
) -> None:
    evaluated(
        tmp_path,
        {"model": "m0", "quality": 1.0} | BPB,
        {"model": "m1", "quality": 2.0} | BPB,
        {"model": "m2", "quality": 3.0} | BPB | other,
    )
    assert str(measured_quality(session_of(tmp_path, frame)).costs.tolist()) == "[1.0, 2.0, nan]"


@pytest.mark.slow
def test_figures_per_token_need_one_tokenizer_and_bits_per_byte_do_not(
    tmp_path: Path, frame: pl.LazyFrame
) -> None:
    for metric, expected in (
        ("bits_per_byte", "[1.0, 2.0, nan]"),
        ("perplexity", "[nan, 2.0, nan]"),
    ):
        folder = tmp_path / metric
        evaluated(
            folder,
            BPB
            | {"model": "m0", "quality": 1.0, "quality_metric": metric, "tokenizer_sha256": "x"},
            BPB
            | {"model": "m1", "quality": 2.0, "quality_metric": metric, "tokenizer_sha256": "y"},
        )
        assert str(measured_quality(session_of(folder, frame)).costs.tolist()) == expected


@pytest.mark.slow
def test_the_newest_evaluation_of_a_model_counts(tmp_path: Path, frame: pl.LazyFrame) -> None:
    evaluated(
        tmp_path,
        {"model": "m0", "quality": 1.0} | BPB,
        {"model": "m0", "quality": 9.0} | BPB,
    )
    assert measured_quality(session_of(tmp_path, frame)).costs[0] == 9.0


@pytest.mark.slow
def test_without_an_evaluation_the_table_says_what_to_run(
    tmp_path: Path, frame: pl.LazyFrame
) -> None:
    table = pareto_table(session_of(tmp_path, frame))
    assert table.frame["precision"].to_list() == [None] * table.frame.height
    assert any("fleetrank eval" in note for note in table.notes)
    assert any("no quality" in note for note in table.notes)


def test_every_precision_of_a_model_is_a_choice(tmp_path: Path, make_attempts) -> None:
    # int8 is faster on d1 and slower on d2; what it loses is known from an evaluation only.
    frame = make_attempts(
        {"model": model, "device": device, "precision": precision, "accuracy_top1": 70.0 + at,
         "latency_p50_ns": latency * 1e6,
         "platform_key": f"{device}/onnx/cpu/eager/{precision}/b1/t1/afree/{{}}"}
        for at, model in enumerate(("a", "b"))
        for device, precision, latency in (
            ("d1", "fp32", 4 + at), ("d1", "int8", 2 + at), ("d2", "fp32", 4 + at),
            ("d2", "int8", 7 + at),
        )
    )  # fmt: skip
    every = Selection(precision="any")
    published = Session(frame, every, results=tmp_path)
    assert published.panel.models == ("a:fp32", "a:int8", "b:fp32", "b:int8")
    assert str(published.panel.accuracy.tolist()) == "[70.0, nan, 71.0, nan]", "of floats alone"
    top1 = {"task": "images", "quality_metric": "top1", "data_sha256": "d"}
    evaluated(
        tmp_path,
        *(
            top1 | {"model": model, "precision": precision, "quality": quality}
            for model, precision, quality in (
                ("a", "fp32", 90.0), ("a", "int8", 89.0), ("b", "fp32", 92.0), ("b", "int8", 88.0),
            )
        ),
    )  # fmt: skip
    (row,) = (
        one
        for one in pareto_table(Session(frame, every, results=tmp_path)).frame.to_dicts()
        if one["level"] == "pair" and one["source"].startswith("d1")
    )
    assert row["n_models"] == 4
    # a:int8, a:fp32 and b:fp32 on d1; on d2 the two in fp32 alone.
    assert (row["n_source"], row["n_target"], row["precision"]) == (3, 2, pytest.approx(2 / 3))
    one = Session(frame, Selection(precision="any", model="a:int8"), results=tmp_path)
    assert one.panel.models == ("a:int8",)
    assert Session(frame, replace(every, model="b"), results=tmp_path).panel.accuracy.tolist() == [
        92.0, 88.0,
    ]  # fmt: skip
