"""Table functions on small hand-made frames, with figures computed by hand."""

import polars as pl
import pytest
from daily import daily
from growth_rows import OF_SIDE_ROWS
from shared_tables import NAMES, SharedTables
from wording import has

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.brief_notes import MAX_SENTENCES, sentences_in
from fleetrank.analysis.tables.formats import FORMATS, render
from fleetrank.analysis.tables.tables import TableRequest, make_table
from fleetrank.analysis.tables.text_columns import KEYS
from fleetrank.foundation.reading_beside import current_step

pytestmark = pytest.mark.slow

UP = [1.0, 2, 3, 4, 5]


def rows_of(name: str, frame: pl.LazyFrame, **selection: object) -> list[dict[str, object]]:
    return make_table(name, frame, Selection(**selection)).frame.to_dicts()  # type: ignore[arg-type]


def test_latency_by_hand_in_milliseconds(make_attempts) -> None:
    frame = make_attempts(
        {"repeat": n, "latency_p50_ns": p50 * 1e6, "latency_p95_ns": p50 * 2e6,
         "latency_p99_ns": p50 * 3e6}
        for n, p50 in enumerate([3.0, 1, 2, 5, 4])
    )  # fmt: skip
    (row,) = rows_of("latency", frame)
    figures = ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "n_repeats", "reason")
    assert [row[name] for name in figures] == [3, 6, 9, 5, None]
    assert row["latency_low_ms"] < 3 < row["latency_high_ms"]
    assert row["latency_low_ms"] * row["latency_high_ms"] == pytest.approx(9)


def test_notes_state_what_stands_behind_the_figures(make_grid) -> None:
    notes = make_table("latency", make_grid({"d1": UP, "d2": UP}), Selection()).notes
    assert current_step() == "makes the table latency", "each table is a step that waits"
    counted = ("5 models", "2 platforms", "2 device models", "seeds", "7", "repeats per cell", "1")
    assert has(notes[0], *counted, "10", "10", "5", "repeats")


def test_memory_by_hand_names_its_metric(make_attempts) -> None:
    frame = make_attempts(
        [{"peak_memory_bytes": 3 * 2**20, "load_peak_memory_bytes": 2**20}, {"model": "b"}]
    )
    known, missing = rows_of("latency/memory", frame)
    assert (known["peak_memory_mib"], known["load_peak_memory_mib"]) == (3, 1)
    assert known["memory_metric"] == "vmhwm_growth"
    assert (missing["peak_memory_mib"], missing["reason"]) == (
        None,
        "the tool gives no memory figure",
    )


def test_coldstart_by_hand(make_attempts) -> None:
    frame = make_attempts(
        [{"load_ns": 5_000_000, "first_inference_ns": 6_000_000, "latency_p50_ns": 2e6}]
    )
    (row,) = rows_of("latency/coldstart", frame)
    assert (row["load_ms"], row["first_inference_ms"], row["first_to_steady"]) == (5, 6, 3)


def test_frm_by_hand_and_dropped_where_a_component_is_missing(make_grid) -> None:
    frame = make_grid({"d1": [2.0, 8, 9]}, memory=[8, 8, 0], flops=[1, 4, 4])
    table = make_table("flops/frm", frame, Selection())
    first, second = table.frame.to_dicts()
    assert first["frm"] == pytest.approx((0.5 * 0.5 * 1) ** (1 / 3))
    assert second["frm"] == pytest.approx((2 * 2 * 1) ** (1 / 3))
    assert (first["n_models"], first["rank_frm"], second["rank_frm"]) == (2, 1, 2)
    assert has(table.notes, "FRM", "1", "3", "0")


def test_transfer_by_hand(make_grid) -> None:
    # One swap of neighbours among 5: rho = 1 - 6 x 2 / (5 x 24) = 0.9, tau = 8 / 10.
    frame = make_grid({"d1": UP, "d2": [1.0, 2, 3, 5, 4]}, memory=[1] * 5, flops=[1] * 5)
    rows = rows_of("transfer", frame)
    (pair,) = [row for row in rows if row["level"] == "pair" and row["measure"] == "latency"]
    assert pair["rho"] == pytest.approx(0.9)
    assert pair["tau_b"] == pytest.approx(0.8)
    # |rho| >= 0.9 in 2 x (1 + 4) of 120 orders.
    assert pair["p_value"] == pytest.approx(10 / 120)
    assert (pair["low"], pair["reason"]) == (None, "no interval: 5 models, at least 9 needed")
    tier = rows[0]
    assert (tier["level"], tier["source"], tier["target"]) == ("tier", "cpu", "cpu")
    assert tier["rho"] == pytest.approx(0.9)


def test_frms_rho_never_stands_without_its_null(make_grid) -> None:
    frame = make_grid({"d1": UP, "d2": UP[::-1]}, memory=[1, 2, 3, 4, 5], flops=[9, 7, 5, 3, 2])
    shown = [row for row in rows_of("transfer", frame) if row["measure"] == "frm"]
    assert len(shown) == 2
    for row in shown:
        assert row["rho"] is not None
        assert row["null_mean"] is not None
        assert row["null_p95"] is not None


def test_one_device_has_no_tier_row_and_says_why(make_attempts) -> None:
    frame = make_attempts(
        {"model": f"m{i}", "runtime": runtime, "latency_p50_ns": float(i)}
        for i in range(1, 7)
        for runtime in ("onnx", "torch")
    )
    table = make_table("transfer", frame, Selection())
    assert set(table.frame["level"]) == {"pair"}
    assert has(table.notes, "undefined", "batch")


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"source": "d2"}, {("d2", "d1"), ("d2", "d3")}),
        ({"target": "d2"}, {("d1", "d2"), ("d3", "d2")}),
        ({"source": "d3", "target": "d1"}, {("d3", "d1")}),
        ({"source_tier": "gpu", "target_tier": "edge"}, {("d1", "d3")}),
        ({"source": "d1/onnx/*", "target_tier": "cpu"}, {("d1", "d2")}),
    ],
)
def test_selectors_choose_and_direct_the_pairs(make_grid, selection, expected) -> None:
    frame = make_grid({"d1": UP, "d2": UP, "d3": UP}, d1={"tier": "gpu"}, d3={"tier": "edge"})
    rows = rows_of("transfer", frame, **selection)
    found = {
        (str(row["source"]).split("/")[0], str(row["target"]).split("/")[0])
        for row in rows
        if row["level"] == "pair"
    }
    assert found == expected


def test_simulated_rows_come_under_a_banner(make_attempts) -> None:
    frame = make_attempts([{"origin": "simulated"}, {"model": "b"}])
    notes = make_table("latency", frame, Selection(origins=("measured", "simulated"))).notes
    assert notes[0].startswith("SIMULATED DATA: 1 of 2 rows")


def test_the_banner_names_the_devices_that_are_none(make_attempts) -> None:
    rows = [{"origin": "virtual", "device": f"phone-{n}"} for n in range(8)]
    frame = make_attempts([*rows, {"device": "real"}])
    banner = make_table("latency", frame, Selection(origins=("measured", "virtual"))).notes[0]
    assert banner.endswith("phone-4, phone-5 and 2 more).")
    assert "real," not in banner


def test_memory_counted_in_unlike_ways_is_said_beside_the_figures(make_attempts) -> None:
    phone = {"device": "phone", "memory_metric": "maxrss_growth"}
    frame = make_attempts([{}, phone, {"device": "other", "memory_metric": None}])
    notes = " ".join(make_table("latency", frame, Selection()).notes)
    assert "different ways" in notes
    assert has(notes, "maxrss_growth", "phone", "vmhwm_growth")
    alike = " ".join(make_table("latency", make_attempts([{}]), Selection()).notes)
    assert "different ways" not in alike


def test_pareto_by_hand(make_grid) -> None:
    # d1: m0 m1 m2 undominated, m3 not. d2: m3 becomes fast and beats m0, m1.
    frame = make_grid(
        {"d1": [1, 2, 3, 4], "d2": [2, 3, 4, 1]}, accuracy=[60, 70, 80, 75], flops=[1, 2, 3, 4]
    )
    _, there, back = rows_of("frontier", frame)
    assert (there["n_models"], there["n_source"], there["n_target"]) == (4, 3, 2)
    assert there["precision"] == pytest.approx(1 / 3)
    assert there["recall"] == pytest.approx(1 / 2)
    assert there["f1"] == pytest.approx(2 / 5)
    assert there["jaccard"] == pytest.approx(1 / 4)
    assert there["chance_precision"] == pytest.approx(2 / 4)
    assert there["flops_precision"] == pytest.approx(1 / 3)
    assert back["precision"] == pytest.approx(1 / 2)


def test_pareto_names_models_without_accuracy(make_grid) -> None:
    frame = make_grid({"d1": [1, 2], "d2": [1, 2]})
    table = make_table("frontier", frame, Selection())
    assert set(table.frame["reason"]) == {"no common model has all objectives"}
    assert has(table.notes, "accuracy", "m0", "m1")


def test_disagreement_by_hand(make_grid) -> None:
    # d1 agrees; on d2 the first is last: shifts +4 and four times -1, one case of 5.
    frame = make_grid({"d1": UP, "d2": [9, 1, 2, 3, 4]}, flops=[1, 2, 3, 4, 5])
    row, _ = rows_of("flops", frame)
    assert (row["measure"], row["n_platforms"], row["n_values"]) == ("latency", 2, 10)
    assert (row["cases"], row["share"], row["platforms_with_any"]) == (1, 0.1, 0.5)
    # 1 - (3 x 5 - 2) / 25 and 1 - 8 / 120.
    assert row["chance_share"] == pytest.approx(0.48)
    assert row["chance_platforms_with_any"] == pytest.approx(1 - 8 / 120)
    worst = rows_of("flops/models", frame)[0]
    assert (worst["model"], worst["mean_shift"], worst["max_shift"]) == ("m0", 2, 4)


def test_quality_counts_flags_and_puts_the_worst_first(make_attempts) -> None:
    frame = make_attempts(
        [
            {"model": "a", "latency_p50_ns": 1.0},
            {"model": "b", "latency_p50_ns": 1.0, "flags": ["drift"]},
            {"model": "b", "latency_p50_ns": 2.0, "repeat": 1},
        ]
    )
    table = make_table("trust", frame, Selection())
    assert table.frame["model"].to_list() == ["b", "a"]
    assert table.frame["flags"].to_list() == [["drift", "repeats_disagree"], []]
    assert any("drift 1, repeats_disagree 1" in note for note in table.notes)


def test_dropped_lists_failures_with_their_reason(make_attempts) -> None:
    frame = make_attempts(
        [
            {"model": "a", "latency_p50_ns": 1.0},
            {"model": "b", "status": "failed", "error_kind": "timed_out", "error_message": "30 s"},
            {"model": "c", "origin": "simulated"},
        ]
    )
    table = make_table("trust/dropped", frame, Selection())
    (row,) = table.frame.to_dicts()
    assert (row["model"], row["reason"], row["detail"]) == ("b", "failed", "30 s")
    assert has(table.notes[0], "1", "2", "attempts", "1")
    assert has(table.notes[1], "1", "simulated", "selected")


def test_only_failures_are_no_data_but_can_be_listed(make_attempts) -> None:
    frame = make_attempts([{"status": "failed"}])
    with pytest.raises(NoDataError, match="no successful measurement"):
        rows_of("latency", frame)
    assert len(rows_of("trust/dropped", frame)) == 1


def test_one_platform_cannot_be_transferred(make_grid) -> None:
    with pytest.raises(NoDataError, match=r"no two platforms.*d1/onnx/b1/t1"):
        rows_of("transfer", make_grid({"d1": UP}))


def test_unknown_table_is_told_with_the_nearest(make_grid) -> None:
    with pytest.raises(AnalysisError, match="did you mean 'latency'"):
        make_table("latecy", make_grid({"d1": UP}), Selection())


def fleet(make_grid) -> pl.LazyFrame:
    devices = {f"d{n}": [float((i * 7 + n * 3) % 11 + 1) for i in range(11)] for n in range(4)}
    tiers = {"d0": {"tier": "gpu"}, "d1": {"runtime": "torch", "device": "d0"}}
    return make_grid(
        devices, memory=range(3, 14), flops=range(1, 12), accuracy=range(60, 71), **tiers
    )


def of_two_workloads(frame: pl.LazyFrame) -> pl.LazyFrame:
    return pl.concat(
        frame.with_columns(
            workload=pl.lit(name), cell_key=pl.format("{} {}", "cell_key", pl.lit(name))
        )
        for name in ("prefill@128", "decode@256")
    )


OF_ROWS = sorted(set(NAMES) - set(OF_SIDE_ROWS))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["latency", "transfer", "trust/findings"], id="few"),
        pytest.param(OF_ROWS, id="every", marks=pytest.mark.thorough),
    ],
)
def test_no_table_depends_on_the_order_of_rows(
    make_grid, names: list[str], subtests: pytest.Subtests
) -> None:
    images = fleet(make_grid)
    both = images, of_two_workloads(images)
    tables, others = (
        SharedTables(*rows, Selection(), workload="decode@256")
        for rows in (both, [frame.reverse() for frame in both])
    )
    for name in names:
        with subtests.test(name):
            request = TableRequest(name=name)
            assert tables.table(request).frame.equals(others.table(request).frame)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(OF_ROWS[::3], id="some"),
        pytest.param(OF_ROWS, id="every", marks=pytest.mark.thorough),
    ],
)
def test_every_table_has_short_notes_every_format_and_keys(
    make_grid, names: list[str], subtests: pytest.Subtests
) -> None:
    images = fleet(make_grid)
    tables = SharedTables(images, of_two_workloads(images), Selection(), workload="decode@256")
    for name in names:
        with subtests.test(name):
            table = tables.table(TableRequest(name=name))
            assert 1 <= sentences_in(table.notes) <= MAX_SENTENCES, table.notes
            assert bool(table.explanation) == (name != "trust/dropped")
            assert all(render(table, form) for form in FORMATS)
            columns = table.frame.columns
            keys = [column for column in columns if column in {columns[0], *KEYS}]
            assert table.frame.select(keys).is_unique().all(), "columns that are never hidden"


@pytest.mark.parametrize(
    "name",
    daily(
        [
            "transfer",
            "trust/ceiling",
            "predict/ratios",
            "frontier",
        ],
        "transfer",
        "predict/ratios",
        "frontier",
    ),
)
def test_unlike_facts_are_printed_with_the_pair(make_grid, name: str) -> None:
    frame = make_grid({"d1": UP, "d2": UP}, accuracy=UP, d2={"runtime_version": "2.0"})
    pairs = [row for row in rows_of(name, frame, source="d1") if row["level"] == "pair"]
    assert {row["unlike"] for row in pairs} == {"runtime_version: 1.0 / 2.0"}
