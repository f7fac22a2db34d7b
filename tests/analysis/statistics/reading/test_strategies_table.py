"""Ways to read a long text, from ordinary cells of prompts and segments."""

import math
from collections.abc import Callable, Iterable

import numpy as np
import polars as pl
import pytest
from language_rows import SEGMENT
from language_rows import reading_rows as _rows
from wording import has

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

Make = Callable[[Iterable[dict[str, object]]], pl.LazyFrame]


def _table(frame: pl.LazyFrame, part: str = "reading", **settings: str) -> Table:
    chosen = Selection(settings=tuple(sorted(settings.items())))
    return make_table(f"tokens/{part}", frame, chosen)


@pytest.fixture
def study(make_attempts: Make) -> pl.LazyFrame:
    rows = [
        *_rows("prefill@256", 256.0, flops=256 * (10_000 + 10 * 256)),
        *_rows("prefill@512", 640.0, flops=512 * (10_000 + 10 * 512)),
        *_rows("prefill@1024", 2048.0, flops=1024 * (10_000 + 10 * 1024)),
        *_rows(SEGMENT, 128 * 1.4, flops=128 * 16_000, peak_memory_bytes=20 << 20),
        *_rows("decode@512", 3.0),
        *_rows("prefill@512", 1.0, batch=2),
    ]
    return make_attempts(rows)


def _of(table: Table, strategy: str, tokens: int, sizes: str | None = None) -> dict[str, object]:
    frame = table.frame.filter(pl.col("strategy") == strategy, pl.col("tokens") == tokens)
    if sizes:
        frame = frame.filter(pl.col("sizes") == sizes)
    return frame.row(0, named=True)


@pytest.mark.slow
def test_times_rates_and_speed_ups_are_those_computed_by_hand(study: pl.LazyFrame) -> None:
    table = _table(study)
    vanilla = _of(table, "vanilla", 1024)
    assert (vanilla["time_ms"], vanilla["inferences"]) == (2048, 1)
    assert vanilla["tokens_per_s"] == pytest.approx(500)
    assert vanilla["speed_up"] is None
    window = _of(table, "window", 1024, "window 256, stride 128")
    assert (window["inferences"], window["time_ms"]) == (7, 7 * 256)
    assert window["tokens_per_s"] == pytest.approx(1024 / (7 * 0.256))
    assert window["speed_up"] == pytest.approx(2048 / (7 * 256))
    hmt = _of(table, "hmt", 1024)
    assert (hmt["inferences"], hmt["sizes"]) == (8, SEGMENT)
    assert hmt["time_ms"] == pytest.approx(8 * 128 * 1.4)
    assert hmt["peak_memory_mib"] == 20
    assert hmt["memory_metric"] == "vmhwm_growth"
    assert (hmt["speed_up_low"], hmt["speed_up_high"]) == (hmt["speed_up"], hmt["speed_up"])


@pytest.mark.slow
def test_a_longer_text_is_read_in_parts_and_vanilla_says_why_not(study: pl.LazyFrame) -> None:
    table = _table(study, tokens="768, 3000")
    assert has(_of(table, "vanilla", 3000)["reason"], "beyond the context", "1,024")
    assert has(_of(table, "vanilla", 768)["reason"], "not measured", "prefill@768")
    assert _of(table, "vanilla", 3000)["time_ms"] is None
    hmt = _of(table, "hmt", 3000)
    assert hmt["inferences"] == math.ceil(3000 / 128)
    assert hmt["speed_up"] is None
    assert has(hmt["reason"], "beyond the context")
    assert _of(table, "window", 3000, "window 1024, stride 512")["inferences"] == 5


@pytest.mark.slow
def test_a_prompt_that_failed_is_named_with_its_error(make_attempts: Make) -> None:
    failed = {"status": "failed", "error_kind": "out_of_memory", "latency_p50_ns": None}
    rows = [
        *_rows("prefill@256", 256.0), *_rows("prefill@512", 1.0, **failed), *_rows(SEGMENT, 128.0),
    ]  # fmt: skip
    assert has(_of(_table(make_attempts(rows), tokens="512"), "vanilla", 512)["reason"],
               "out_of_memory")  # fmt: skip


@pytest.mark.slow
def test_a_stride_is_set_and_a_window_shorter_than_it_is_left_out(study: pl.LazyFrame) -> None:
    sizes = set(_table(study, stride="300").frame["sizes"].drop_nulls())
    assert sizes == {SEGMENT, "window 512, stride 300"}


@pytest.mark.slow
def test_an_interval_of_a_speed_up_is_that_of_resampled_medians(make_attempts: Make) -> None:
    rng = np.random.default_rng(3)
    noise = [np.exp(rng.normal(0, 0.1, 7)) for _ in range(2)]
    rows = [
        *_rows("prefill@256", 300.0, noise=noise[0]),
        *_rows(SEGMENT, 100.0, noise=noise[1]),
    ]
    hmt = _of(_table(make_attempts(rows)), "hmt", 256)
    draws = [
        np.median(rng.choice(300 * noise[0], 7)) / (2 * np.median(rng.choice(100 * noise[1], 7)))
        for _ in range(4000)
    ]
    assert hmt["speed_up"] == pytest.approx(1.5 * np.median(noise[0]) / np.median(noise[1]))
    assert (hmt["speed_up_low"], hmt["speed_up_high"]) == pytest.approx(
        tuple(np.quantile(draws, [0.025, 0.975])), rel=0.02
    )


@pytest.mark.slow
def test_few_repeats_give_no_interval_and_say_so(make_attempts: Make) -> None:
    rows = [*_rows("prefill@256", 300.0), *_rows(SEGMENT, 100.0, noise=(1, 1, 1))]
    hmt = _of(_table(make_attempts(rows)), "hmt", 256)
    assert (hmt["speed_up"], hmt["speed_up_low"]) == (1.5, None)
    assert has(hmt["reason"], "3 repeats", SEGMENT)


@pytest.mark.slow
def test_the_crossover_is_between_the_lengths_beside_that_by_operations(
    study: pl.LazyFrame,
) -> None:
    rows = _table(study, part="crossover").frame.to_dicts()
    hmt = next(row for row in rows if row["strategy"] == "hmt")
    # Vanilla takes 1.25 ms a token at 512 and 2 at 1024; a segment takes 1.4.
    assert hmt["crossover_tokens"] == pytest.approx(512 + 512 * 0.15 / 0.75)
    assert (hmt["low_tokens"], hmt["high_tokens"]) == pytest.approx((614.4, 614.4))
    assert hmt["by_operations_tokens"] == pytest.approx(600)
    assert hmt["measured_over_operations"] == pytest.approx(614.4 / 600)
    assert (hmt["shortest_tokens"], hmt["longest_tokens"], hmt["n_lengths"]) == (256, 1024, 3)
    assert hmt["reason"] is None
    # By operations W + f1 / f2 for a stride of half a window: 256 + 1000.
    assert {row["sizes"] for row in rows} == {
        SEGMENT, "window 256, stride 128", "window 512, stride 256",
    }, "no prompt is longer than the last window"  # fmt: skip
    window = next(row for row in rows if row["sizes"] == "window 256, stride 128")
    assert window["by_operations_tokens"] == pytest.approx(1256)
    assert has(window["reason"], "beyond the context of 1,024")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ms", "said"),
    [(128 * 3.0, ("slower up to 1,024",)), (128 * 0.5, ("faster from 256",))],
)
def test_outside_the_measured_lengths_there_is_a_reason_and_no_figure(
    make_attempts: Make, ms: float, said: tuple[str, ...]
) -> None:
    rows = [
        *_rows("prefill@256", 256.0), *_rows("prefill@1024", 2048.0), *_rows(SEGMENT, ms),
    ]  # fmt: skip
    frame = _table(make_attempts(rows), part="crossover").frame.filter(strategy="hmt")
    row = frame.row(0, named=True)
    assert (row["crossover_tokens"], row["low_tokens"], row["high_tokens"]) == (None, None, None)
    assert has(row["reason"], *said, "no crossover by operations")


@pytest.mark.slow
def test_prompts_shorter_than_a_segment_are_not_compared(make_attempts: Make) -> None:
    rows = [*_rows("prefill@64", 64.0), *_rows(SEGMENT, 128.0)]
    row = _table(make_attempts(rows), part="crossover").frame.row(0, named=True)
    assert (row["n_lengths"], row["crossover_tokens"]) == (0, None)
    assert has(row["reason"], "no prompt")


def _crossover_row(make_attempts: Make, *few: str) -> dict[str, object]:
    """The row of the segment; the prompts of `few` have 4 repeats."""
    rows = [
        *(
            row
            for length in (32, 64, 256, 512, 1024)
            for row in _rows(
                f"prefill@{length}",
                length * (1 + length / 1000),
                noise=(1,) * (4 if f"prefill@{length}" in few else 5),
            )
        ),
        *_rows(SEGMENT, 128 * 1.4),
    ]
    frame = _table(make_attempts(rows), part="crossover").frame
    return frame.filter(strategy="hmt").row(0, named=True)


@pytest.mark.slow
@pytest.mark.parametrize("used", ["prefill@64", "prefill@1024"])
def test_a_prompt_of_the_comparison_that_lacks_repeats_is_named(
    make_attempts: Make, used: str
) -> None:
    # The time of vanilla at 128, the length of the segment, follows from 64 and 256.
    row = _crossover_row(make_attempts, "prefill@32", used)
    assert row["crossover_tokens"] == pytest.approx(400)
    assert (row["low_tokens"], row["high_tokens"]) == (None, None)
    assert has(row["reason"], f"4 repeats of {used},")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "word"),
    [({"stride": "0"}, "stride"), ({"stride": "2.5"}, "stride"), ({"tokens": "1e3"}, "tokens"),
     ({"reference": "segment@8"}, "reference")],
)  # fmt: skip
def test_a_setting_that_is_out_of_range_is_refused(
    study: pl.LazyFrame, settings: dict[str, str], word: str
) -> None:
    with pytest.raises(AnalysisError) as raised:
        _table(study, **settings)
    assert word in f"{raised.value.message} {raised.value.remedy}"


@pytest.mark.parametrize("part", ["reading", "crossover"])
def test_without_such_rows_a_part_says_what_to_measure(make_attempts: Make, part: str) -> None:
    rows = [*_rows("decode@128", 3.0)]
    with pytest.raises(NoDataError) as raised:
        _table(make_attempts(rows), part=part)
    assert "workloads:" in raised.value.remedy


@pytest.mark.slow
def test_a_prompt_of_two_weights_is_left_out_and_counted(make_attempts: Make) -> None:
    other = {"weights_id": "file:x", "cell_key": "other"}
    rows = [
        *_rows("prefill@256", 256.0), *_rows("prefill@512", 512.0), *_rows(SEGMENT, 128.0),
        *({**row, **other} for row in _rows("prefill@512", 700.0)),
    ]  # fmt: skip
    table = _table(make_attempts(rows))
    assert set(table.frame["tokens"]) == {256}
    assert any(has(note, "2 cells", "prefill@512") for note in table.notes)


@pytest.mark.slow
def test_cells_of_two_sweeps_are_named(make_attempts: Make) -> None:
    rows = [*_rows("prefill@256", 256.0), *_rows(SEGMENT, 128.0, sweep_id="s2")]
    assert any(has(note, "several sweeps") for note in _table(make_attempts(rows)).notes)
