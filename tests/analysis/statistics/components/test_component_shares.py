"""Shares of components, against sums made by hand."""

from datetime import UTC, datetime
from statistics import median

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.statistics.components.component_shares import (
    attributed_share,
    component_of,
    component_shares,
    macs_shares,
    valid_profiles,
)
from fleetrank.analysis.stored.component_times import COMPONENT_TIMES
from fleetrank.analysis.stored.side_tables import MODULE_MACS

NOW = datetime(2026, 11, 22, tzinfo=UTC)
_ROW = {
    "sweep_id": "s-1", "cell_key": "c", "repeat": 0, "attempt": 0, "status": "ok",
    "model": "net", "workload": "image", "platform_key": "p", "started_utc": NOW, "calls": 1,
    "is_inserted": False, "module": "", "operator": "Op", "node": "n", "kernel_ns": 1,
}  # fmt: skip


def kernels(*rows: dict[str, object]) -> pl.DataFrame:
    full = [{**dict.fromkeys(COMPONENT_TIMES.schema), **_ROW, **row} for row in rows]
    return pl.DataFrame(full, schema=COMPONENT_TIMES.schema)


@pytest.mark.parametrize(
    ("module", "depth", "name"),
    [
        ("features.2.conv.0.1", 1, "features.2"),
        ("features.2.conv.0.1", 2, "features.2.conv.0"),
        ("features.2.conv.0.1", 3, "features.2.conv.0.1"),
        ("features.2.conv.0.1", 20, "features.2.conv.0.1"),
        ("head", 1, "head"),
        ("0.1", 1, "0.1"),
        ("", 1, "(model) Op"),
        (None, 1, "(no module named)"),
    ],
)
def test_a_component_is_the_beginning_of_a_path(module, depth: int, name: str) -> None:
    found = kernels({"module": module}).select(component_of("module", depth).alias("found"))
    assert found.item() == name


def test_the_models_own_kernels_have_the_name_that_all_runtimes_share() -> None:
    row = {"operator": "Gemm", "source_operator": "linear"}
    found = kernels(row).select(component_of("module", 1).alias("found"))
    assert found.item() == "(model) linear"


def test_the_operator_can_be_the_component() -> None:
    found = kernels({"operator": "Conv"}).select(component_of("operator", 1).alias("found"))
    assert found.item() == "Conv"


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.integers(1, 10**9), min_size=3, max_size=3), min_size=1, max_size=9
    ).filter(lambda runs: len(runs) != 0)
)
def test_shares_are_medians_over_processes_and_sum_to_one(times: list[list[int]]) -> None:
    rows = [
        {"repeat": repeat, "module": f"m.{place}", "kernel_ns": ns}
        for repeat, run in enumerate(times)
        for place, ns in enumerate(run)
    ]
    found = component_shares(kernels(*rows), component_of("module", 1))
    medians = [median(run[place] / sum(run) for run in times) for place in range(3)]
    shares = dict(found.select("component", "share").iter_rows())
    for place, value in enumerate(medians):
        assert shares[f"m.{place}"] == pytest.approx(value / sum(medians))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert found["share"].to_list() == sorted(shares.values(), reverse=True)
    has_interval = len(times) >= 5
    assert found["share_low"].is_null().any() != has_interval
    if has_interval:
        assert (found["share_low"] <= found["share"]).all()
        assert (found["share_high"] >= found["share"]).all()


def test_a_component_that_a_process_lacks_took_no_time_there() -> None:
    rows = [{"repeat": repeat, "module": "a", "kernel_ns": 10} for repeat in range(3)]
    rows.append({"repeat": 0, "module": "b", "kernel_ns": 10})
    found = component_shares(kernels(*rows), component_of("module", 1))
    assert dict(found.select("component", "share").iter_rows()) == {"a": 1.0, "b": 0.0}
    assert found["n_processes"].to_list() == [3, 3]


def test_bytes_are_missing_where_a_kernel_states_none() -> None:
    rows = [
        {"module": "a", "output_bytes": 4, "weight_bytes": 1},
        {"module": "a", "output_bytes": 6},
    ]
    found = component_shares(kernels(*rows), component_of("module", 1)).row(0, named=True)
    assert (found["output_bytes"], found["weight_bytes"]) == (10, None)


def test_the_newest_sweep_and_the_last_attempt_count() -> None:
    rows = kernels(
        {"sweep_id": "old", "node": "old", "started_utc": NOW.replace(year=2025)},
        {"sweep_id": "new", "node": "failed", "attempt": 0, "status": "failed"},
        {"sweep_id": "new", "node": "first", "attempt": 1, "workload": None},
        {"sweep_id": "new", "node": "last", "attempt": 2},
    )
    assert valid_profiles(rows)["node"].to_list() == ["last"]


def test_how_much_is_attributed_and_inserted() -> None:
    rows = kernels(
        {"kernel_ns": 60}, {"kernel_ns": 30, "is_inserted": True}, {"kernel_ns": 10, "module": None}
    )
    found = attributed_share(rows).row(0, named=True)
    assert (found["attributed"], found["inserted"]) == pytest.approx((0.9, 0.3))


def test_shares_of_macs_are_of_the_same_components() -> None:
    parts = [
        ("blocks.0.up", "linear", 30), ("blocks.0", "matmul", 10), ("blocks.1.up", "linear", 40),
        ("", "linear", 20),
    ]  # fmt: skip
    rows = pl.DataFrame(
        [
            {"sweep_id": sweep, "model": "net", "workload": None, "module": module,
             "source_operator": operator, "macs": macs}
            for sweep in ("s-1", "s-2")
            for module, operator, macs in parts
        ],
        schema=MODULE_MACS.schema,
    )  # fmt: skip
    found = macs_shares(rows, component_of("module", 1)).filter(pl.col("sweep_id") == "s-1")
    assert dict(found.select("component", "macs_share").iter_rows()) == {
        "blocks.0": pytest.approx(0.4), "blocks.1": pytest.approx(0.4),
        "(model) linear": pytest.approx(0.2),
    }  # fmt: skip
    assert set(found["workload"]) == {"image"}
