"""Components of variance on frames made by hand, and sessions in the ceiling."""

import numpy as np
import polars as pl
import pytest
from scipy import stats
from wording import has

from fleetrank.analysis.arrays.variance_components import coefficients
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session, device_groups, observations
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow

N_MODELS = 16


def rows_of(
    devices: int, sweeps: int, repeats: int, *, of_session: float = 0.0, noise: float = 0.02,
    seed: int = 3,
) -> list[dict[str, object]]:  # fmt: skip
    """Models on devices with their own part of 0.2, a session's part, and noise, as log latency."""
    rng = np.random.default_rng(seed)
    models = rng.normal(0, 1, N_MODELS)
    rows = []
    for device in range(devices):
        own = models + 0.2 * rng.normal(size=N_MODELS) + device
        for sweep in range(sweeps):
            there = own + of_session * rng.normal(size=N_MODELS)
            for repeat in range(repeats):
                logs = there + noise * rng.normal(size=N_MODELS)
                rows += [
                    {"model": f"m{i:02}", "device": f"d{device}", "sweep_id": f"s{sweep}",
                     "repeat": repeat, "started_utc": 24 * sweep,
                     "latency_p50_ns": float(1e6 * np.exp(log)), "peak_memory_bytes": 1000 + i,
                     "flops": 10 + i}
                    for i, log in enumerate(logs)
                ]  # fmt: skip
    return rows


def table_of(frame: pl.LazyFrame, part: str = "variance", **selection) -> pl.DataFrame:
    return make_table(f"trust/{part}", frame, Selection(**selection)).frame


def by_component(frame: pl.DataFrame) -> dict[str, dict[str, object]]:
    return {row["component"]: row for row in frame.to_dicts()}


def test_planted_components_are_found_inside_their_intervals(make_attempts) -> None:
    rows = by_component(table_of(make_attempts(rows_of(6, 3, 4, of_session=0.1))))
    for component, true in (
        ("model x device", 0.04), ("model x session", 0.01), ("repeat", 0.0004),
    ):  # fmt: skip
        row = rows[component]
        assert row["low"] < true < row["high"], component
        assert row["variance"] == pytest.approx(true, rel=0.3), component
        assert row["sd_percent"] == pytest.approx(100 * np.expm1(np.sqrt(row["variance"])))
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1.0)
    of_order = {name: row["share_of_order"] for name, row in rows.items()}
    assert (of_order.pop("device"), of_order.pop("session")) == (None, None)
    assert sum(of_order.values()) == pytest.approx(1.0)
    # No session shifts all models here, so the estimate is near 0, above or below.
    assert rows["session"]["variance"] < 0.005
    assert [row["n_levels"] for row in rows.values()] == [16, 6, 96, 18, 288, 1152]


def test_one_session_leaves_its_variance_inside_the_device(make_attempts) -> None:
    rows = by_component(table_of(make_attempts(rows_of(4, 1, 3))))
    for component, outer in (("session", "device"), ("model x session", "model x device")):
        assert rows[component]["variance"] is None
        assert rows[component]["reason"].endswith(f"part of {outer}")
    assert rows["repeat"]["variance"] is not None


def test_one_repeat_and_one_device_have_their_reasons(make_attempts) -> None:
    rows = by_component(table_of(make_attempts(rows_of(1, 1, 1))))
    assert rows["model"]["variance"] is not None
    for component in ("model x device", "model x session", "repeat"):
        assert rows[component]["reason"].endswith("part of model")
    assert rows["device"]["reason"] == "one device model"


def test_few_models_have_no_components(make_attempts) -> None:
    rows = [row for row in rows_of(3, 2, 2) if row["model"] in ("m00", "m01", "m02")]
    frame = make_attempts(rows)
    table = table_of(frame)
    assert table["variance"].null_count() == table.height == 6
    assert table["reason"][0] == "3 models, at least 5 needed"
    assert table_of(frame, "plans").is_empty()


def test_a_device_model_counts_once_and_the_rest_is_named(make_attempts) -> None:
    rows = rows_of(4, 1, 2)
    twin = [row | {"device": "d9", "device_model": "model of d0"} for row in rows
            if row["device"] == "d0" and row["model"] != "m00"]  # fmt: skip
    session = Session(make_attempts(rows + twin), Selection())
    (group,) = device_groups(session)
    assert [key.partition("/")[0] for key in group.keys] == ["d0", "d1", "d2", "d3"]
    assert group.n_left_out == 1
    notes = make_table("trust/variance", make_attempts(rows + twin), Selection()).notes
    assert any(note.startswith("Not used: 1 further platform") for note in notes)


@pytest.mark.thorough
def test_sizes_of_axes_are_groups_of_their_own(make_attempts) -> None:
    sizes = {"seq=128": 0, "seq=512": 1, None: 2}
    rows = [
        row | {"axes": axes, "platform_key": f"{row['device']}/onnx/{axes}",
               "latency_p50_ns": row["latency_p50_ns"] * 4**at}
        for axes, at in sizes.items() for row in rows_of(2, 1, 2, seed=at)
    ]  # fmt: skip
    alone = {
        axes: table_of(make_attempts([row for row in rows if row["axes"] == axes]))
        for axes in sizes
    }
    assert "axes" not in alone[None].columns
    table = table_of(make_attempts(rows))
    assert table["axes"].unique(maintain_order=True).to_list() == [None, "seq=128", "seq=512"]
    for axes, one in alone.items():
        mine = table.filter(pl.col("axes").eq_missing(axes))
        assert mine.drop("axes").equals(one.drop("axes", strict=False)), axes


def test_tiers_have_their_own_group_and_one_of_all(make_attempts) -> None:
    rows = rows_of(4, 1, 2)
    for row in rows:
        row["tier"] = "edge" if row["device"] in ("d0", "d1") else "cpu"
    table = table_of(make_attempts(rows))
    assert table["tier"].unique(maintain_order=True).to_list() == ["cpu", "edge", "all"]
    levels = table.filter(pl.col("component") == "device")["n_levels"].to_list()
    assert levels == [2, 2, 4]


def test_a_long_pause_begins_a_session_and_another_runtime_version_is_left_out(
    make_attempts,
) -> None:
    rows = rows_of(1, 1, 4)
    for row in rows:
        row["started_utc"] = (0, 5, 12, 13)[row["repeat"]]
    old = [row | {"sweep_id": "s-old", "started_utc": -90, "runtime_version": "0.9"}
           for row in rows]  # fmt: skip
    found = observations(Session(make_attempts(rows + old), Selection()))
    sessions = found.group_by("session").agg(pl.col("repeat").unique().sort()).sort("session")
    assert sessions["repeat"].to_list() == [[0, 1], [2, 3]]


def test_coefficients_are_those_of_the_formula_and_of_correlations_of_drawn_data(
    make_attempts,
) -> None:
    variances = np.array([[1.0, 9.0, 0.3, 9.0, 0.2, 0.6]])
    platform, tier = coefficients(variances, 2, 3, 4)[:, 0]
    assert platform == pytest.approx(1.3 / (1.3 + 0.2 / 2 + 0.6 / 6))
    assert tier == pytest.approx(1.0 / (1.0 + 0.3 / 4 + 0.2 / 8 + 0.6 / 24))
    # Two repetitions of the same design on other devices and sessions correlate that much.
    rng = np.random.default_rng(0)
    n = 40_000
    model = rng.normal(size=n)

    def repetition() -> np.ndarray:
        noise = rng.normal(size=(n, 4)) * np.sqrt(0.3 + 0.2 / 2 + 0.6 / 6)
        return model + noise.mean(axis=1)

    assert np.corrcoef(repetition(), repetition())[0, 1] == pytest.approx(tier, abs=0.01)


def test_plans_grow_with_what_they_add(make_attempts) -> None:
    table = table_of(make_attempts(rows_of(5, 2, 3, of_session=0.2, noise=0.3)), "plans")
    rows = {row["plan"]: row for row in table.to_dicts()}
    now = rows["now"]
    assert (now["n_devices"], now["n_sessions"], now["n_repeats"]) == (5, 1, 3.0)
    assert now["platform_low"] < now["platform_coefficient"] < now["platform_high"]
    for plan in ("+1 session", "x2 repeats"):
        assert rows[plan]["platform_coefficient"] > now["platform_coefficient"]
        assert rows[plan]["n_processes"] == 2 * now["n_processes"]
    assert rows["x2 devices"]["platform_coefficient"] == now["platform_coefficient"]
    assert rows["x2 devices"]["tier_coefficient"] > rows["+1 device"]["tier_coefficient"]
    assert rows["+1 device"]["tier_coefficient"] > now["tier_coefficient"]


def test_one_session_gives_an_upper_bound_and_no_plan_with_more_sessions(make_attempts) -> None:
    rows = {
        row["plan"]: row for row in table_of(make_attempts(rows_of(3, 1, 4)), "plans").to_dicts()
    }
    assert has(rows["now"]["reason"], "upper bound")
    assert rows["+1 session"]["platform_coefficient"] is None
    assert rows["+1 session"]["tier_coefficient"] is None
    alone = table_of(make_attempts(rows_of(1, 1, 4)), "plans")
    assert alone["plan"].to_list() == ["now", "+1 session", "x2 repeats"]
    assert alone["tier_coefficient"].null_count() == 3


def test_equal_latencies_have_no_coefficient(make_attempts) -> None:
    rows = [row | {"latency_p50_ns": 5e6} for row in rows_of(3, 2, 2)]
    table = table_of(make_attempts(rows), "plans")
    assert table["platform_coefficient"].null_count() == table.height > 0
    parts = table_of(make_attempts(rows))
    assert parts["variance"].to_list() == [0.0] * 6
    assert parts["share"].null_count() == 6


def test_an_unknown_word_is_refused_with_the_nearest(make_attempts) -> None:
    with pytest.raises(AnalysisError) as error:
        table_of(make_attempts(rows_of(2, 1, 2)), "plan")
    assert "plans" in error.value.remedy


def test_a_ceiling_uses_sessions_where_two_exist(make_attempts) -> None:
    """Repeats of a session agree closely, sessions do not: halves alone would promise too much."""
    rows = rows_of(2, 2, 4, of_session=0.5, noise=0.01)
    both = make_table("trust/ceiling", make_attempts(rows), Selection()).frame
    one = make_table("trust/ceiling", make_attempts(rows), Selection(sweep="s1")).frame
    platform = pl.col("level") == "platform", pl.col("measure") == "latency"
    assert one.filter(*platform)["method"].unique().to_list() == ["split repeats"]
    assert one.filter(*platform)["figure"].min() > 0.99
    found = both.filter(*platform)
    assert found["method"].unique().to_list() == ["pairs of sessions"]
    values = (
        pl.DataFrame(rows)
        .group_by("device", "model", "sweep_id")
        .agg(pl.col("latency_p50_ns").median())
    )
    for device, figure in zip(("d0", "d1"), found["figure"], strict=True):
        mine = values.filter(pl.col("device") == device).pivot(
            "sweep_id", index="model", values="latency_p50_ns"
        )
        assert figure == pytest.approx(stats.spearmanr(mine["s0"], mine["s1"]).statistic)
    pair = both.filter(pl.col("level") == "pair", pl.col("measure") == "latency")
    assert pair["ceiling"][0] == pytest.approx(np.sqrt(found["figure"].product()))


def test_sessions_in_opposite_order_give_no_ceiling_and_say_why(make_attempts) -> None:
    rows = rows_of(2, 1, 3)
    turned = [
        row | {"sweep_id": "s1", "started_utc": 40, "latency_p50_ns": 1e12 / row["latency_p50_ns"]}
        for row in rows
    ]
    frame = make_table("trust/ceiling", make_attempts(rows + turned), Selection()).frame
    row = frame.filter(pl.col("level") == "platform", pl.col("measure") == "latency").to_dicts()[0]
    assert row["figure"] is None
    assert has(row["reason"], "sessions")
