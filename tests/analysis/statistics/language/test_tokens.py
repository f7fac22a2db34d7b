"""Figures for each token, and the time of a whole answer."""

import pytest
from language_rows import write_language_results
from wording import has

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.language.token_tables import MEANINGS, NAMES
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table
from fleetrank.foundation.workload import WorkloadKind

STEP = {
    "model": "net", "workload": "decode@128", "batch": 4, "tokens_per_inference": 4,
    "latency_p50_ns": 20e6, "flops": 3_000_000, "bytes_moved": 5_000_000, "energy_mj": 80.0,
    "weight_bytes": 4 << 20, "state_bytes": 1 << 20,
}  # fmt: skip


def one_row(make_attempts, table: str, **facts: object) -> dict[str, object]:
    frame = make_attempts([STEP | facts])
    (row,) = make_table(table, frame, Selection()).frame.to_dicts()
    return row


def test_a_step_gives_each_sequence_one_token(make_attempts) -> None:
    row = one_row(make_attempts, "tokens")
    assert row["itl_p50_ms"] == 20
    assert row["decode_tokens_per_s"] == 4 / 0.020
    assert row["j_per_token"] == pytest.approx(0.080 / 4)
    assert row["flops_per_byte"] == pytest.approx(3e6 * 4 / 5e6)
    assert (row["weights_mib"], row["state_mib"]) == (4, 1)


def test_a_segment_has_its_new_tokens_in_its_rate(make_attempts) -> None:
    workload = {"workload": "segment@64+k8+n16", "batch": 2, "tokens_per_inference": 128}
    row = one_row(make_attempts, "tokens", **workload)
    assert (row["segment_p50_ms"], row["segment_tokens_per_s"]) == (20, 128 / 0.020)


@pytest.mark.parametrize("names", [NAMES, MEANINGS])
def test_every_inference_on_tokens_has_a_name_and_a_meaning(names) -> None:
    kinds = WorkloadKind
    assert names.keys() == set(kinds) - {kinds.IMAGE, kinds.TRAIN, kinds.SCORE}


@pytest.mark.slow
def test_utilisation_needs_the_peaks_of_the_device(make_attempts) -> None:
    unknown = one_row(make_attempts, "tokens")
    assert (unknown["mfu"], unknown["mbu"]) == (None, None)
    known = one_row(make_attempts, "tokens", peak_gflops=50.0, peak_gbps=10.0)
    assert known["mfu"] == pytest.approx(3e6 * 4 / 0.020 / 50e9)
    assert known["mbu"] == pytest.approx(5e6 / 0.020 / 10e9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "facts",
    [{"latency_p50_ns": 0.0}, {"tokens_per_inference": 0}, {"peak_gbps": 0.0}, {"bytes_moved": 0}],
)
def test_a_figure_over_nothing_is_null(make_attempts, facts: dict[str, object]) -> None:
    one_row(make_attempts, "tokens", **facts)


@pytest.mark.thorough
def test_prompts_and_steps_have_rates_of_different_names(tmp_path) -> None:
    frame = load_measurements(write_language_results(tmp_path))
    of_prompt, of_step = (
        set(make_table("tokens", frame, Selection(workload=name)).frame.columns)
        for name in ("prefill@128", "decode@128")
    )
    assert {"ttft_p50_ms", "prefill_tokens_per_s"} <= of_prompt - of_step
    assert {"itl_p50_ms", "decode_tokens_per_s"} <= of_step - of_prompt


def test_images_have_no_tokens(make_attempts) -> None:
    with pytest.raises(NoDataError, match="no tokens"):
        one_row(make_attempts, "tokens", workload=None)


def test_the_latency_table_says_what_its_latency_is(make_attempts) -> None:
    table = make_table("latency", make_attempts([STEP]), Selection())
    assert table.title == "Latency, decode@128"
    assert "inter-token latency (ITL)" in table.explanation[0]


def parts(make_attempts, *more: dict[str, object]):
    prompt = {"workload": "prefill@128", "latency_p50_ns": 100e6}
    rows = [STEP | prompt, STEP | {"workload": "decode@256"}, *more]
    return make_attempts(
        row | {"repeat": repeat, "latency_p50_ns": row["latency_p50_ns"] * (1 + repeat / 100)}
        for row in rows
        for repeat in range(5)
    )


@pytest.mark.slow
def test_a_whole_answer_is_its_prompt_and_one_step_less_than_its_tokens(make_attempts) -> None:
    (row,) = make_table("tokens/request", parts(make_attempts), Selection()).frame.to_dicts()
    assert row["end_to_end_ms"] == pytest.approx((100 + 31 * 20) * 1.02)
    low, high = row["end_to_end_low_ms"], row["end_to_end_high_ms"]
    assert (100 + 31 * 20) * 0.98 < low < row["end_to_end_ms"] < high < (100 + 31 * 20) * 1.06
    # Both parts vary alike, so the ends are the sums of theirs.
    assert low * high == pytest.approx(row["end_to_end_ms"] ** 2)
    assert row["generate_ms"] is None


@pytest.mark.slow
def test_a_measured_answer_stands_beside_the_sum_of_its_parts(make_attempts) -> None:
    whole = STEP | {
        "workload": "generate@128+32", "latency_p50_ns": 22e6, "ttft_samples_ns": [110_000_000],
    }  # fmt: skip
    (row,) = make_table("tokens/request", parts(make_attempts, whole), Selection()).frame.to_dicts()
    assert row["generate_ms"] == pytest.approx(110 + 31 * 22 * 1.02)
    assert row["parts_to_generate"] == pytest.approx(row["end_to_end_ms"] / row["generate_ms"])


def test_an_answer_longer_than_every_measured_cache_is_refused(make_attempts) -> None:
    asked = Selection(settings=(("prompt", 128), ("generated", 129)))
    with pytest.raises(NoDataError) as raised:
        make_table("tokens/request", parts(make_attempts), asked)
    assert "decode@256" in raised.value.message
    assert "decode@257" in raised.value.remedy


@pytest.mark.slow
def test_a_length_that_ran_out_of_memory_leaves_the_others(make_attempts) -> None:
    failed = {"status": "failed"}
    too_long = [STEP | {"workload": name} | failed for name in ("prefill@2048", "decode@4096")]
    whole = STEP | {"workload": "generate@128+32"} | failed
    (row,) = make_table(
        "tokens/request", parts(make_attempts, *too_long, whole), Selection()
    ).frame.to_dicts()
    assert row["end_to_end_ms"] == pytest.approx((100 + 31 * 20) * 1.02)
    assert row["generate_ms"] is None
    asked = Selection(settings=(("prompt", 1024.0),))
    with pytest.raises(NoDataError) as found:
        make_table("tokens/request", parts(make_attempts, *too_long), asked)
    assert has(found.value.message, "1,024", "no valid attempt of prefill@2048")


@pytest.mark.parametrize("wrong", [0, -1, 1.5, 1e7, "many"])
def test_a_number_of_tokens_is_a_whole_number(make_attempts, wrong: object) -> None:
    with pytest.raises(AnalysisError):
        make_table("tokens/request", parts(make_attempts), Selection(settings=(("prompt", wrong),)))


@pytest.mark.thorough
def test_a_source_limits_the_platforms_of_every_workload(tmp_path) -> None:
    frame = load_measurements(write_language_results(tmp_path))
    for name in ("tokens/request", "transfer/phases"):
        table = make_table(name, frame, Selection(source="xeon")).frame
        assert {key.split("/")[0] for key in table["platform_key"].drop_nulls()} == {"xeon"}
    assert str(Session(frame, Selection(workload="decode@128")).workload) == "decode@128"


@pytest.mark.slow
def test_each_cell_uses_the_shortest_prompt_that_it_measured(make_attempts) -> None:
    shorter = STEP | {"workload": "prefill@64", "latency_p50_ns": 50e6}
    other = {"model": "other", "cell_key": "o"}
    frame = parts(
        make_attempts, shorter, STEP | other | {"workload": "decode@256"},
        STEP | {"model": "other", "cell_key": "q", "workload": "prefill@128"},
    )  # fmt: skip
    asked = Selection(settings=(("prompt", 40), ("generated", 2)))
    rows = {
        row["model"]: row for row in make_table("tokens/request", frame, asked).frame.to_dicts()
    }
    assert rows["net"]["prompt_workload"] == "prefill@64"
    assert rows["other"]["prompt_workload"] == "prefill@128"
    assert all(row["end_to_end_ms"] is not None for row in rows.values())
