"""Models that took turns are ranked without what the host did; all other rows stay as they are."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.latency_tables import latency_table
from fleetrank.analysis.statistics.model_differences import significance
from fleetrank.analysis.statistics.model_ranks import ranks_on_platforms
from fleetrank.analysis.statistics.pairs import faster
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

LEVELS_NS = {"a": 1.00e6, "b": 1.03e6, "c": 1.06e6, "d": 1.5e6, "e": 1.6e6, "f": 2e6}
BLOCKS = 5
Row = dict[str, object]


def rows_of(
    seed: int = 0, *, repeats: int = 6, host: float = 0.15, noise: float = 0.005,
    levels: dict[str, float] = LEVELS_NS,
) -> Iterator[Row]:  # fmt: skip
    """Rounds of three models on a host whose speed changes between rounds and between blocks."""
    random = np.random.default_rng(seed)
    names = list(levels)
    for repeat in range(repeats):
        order = random.permutation(len(names))
        for group in range(-(-len(names) // 3)):
            weather = random.normal(0, host) + random.normal(0, host / 3, BLOCKS)
            for at in order[group :: -(-len(names) // 3)]:
                logs = weather + random.normal(0, noise) + random.normal(0, noise / 3, BLOCKS)
                medians = levels[names[at]] * np.exp(logs)
                yield {
                    "model": names[at], "repeat": repeat, "round_id": f"r{repeat}.{group}",
                    "block_medians_ns": medians.round().astype(int).tolist(),
                    "block_starts_ns": [10**9 * (6 * repeat + n) for n in range(BLOCKS)],
                    "latency_p50_ns": float(np.median(medians)), "design": "rounds",
                    "flops": 10**6, "peak_memory_bytes": 10**6, "statistic": "median",
                }  # fmt: skip


@pytest.fixture
def session_of(make_attempts: Callable[..., pl.LazyFrame]) -> Callable[..., Session]:
    def make(rows: list[Row], **selected: object) -> Session:
        return Session(make_attempts(rows), replace(Selection(), **selected))

    return make


def ratios(latencies: np.ndarray, levels: dict[str, float] = LEVELS_NS) -> np.ndarray:
    """Measured over true ratios to the geometric mean."""
    logs = np.log(latencies) - np.log(list(levels.values()))
    return np.exp(logs - logs.mean())


@pytest.mark.slow
def test_the_panel_has_the_models_and_not_the_host(session_of) -> None:
    panel = session_of(list(rows_of())).panel
    assert ratios(panel.latency[:, 0]) == pytest.approx(1.0, abs=0.01)


@pytest.mark.slow
def test_the_cells_that_people_read_keep_their_medians(session_of) -> None:
    session = session_of(list(rows_of()))
    without = [row | {"round_id": None} for row in rows_of()]
    expected = session_of(without).cells.cells
    assert_frame_equal(session.cells.cells, expected)
    assert_frame_equal(latency_table(session).frame, latency_table(session_of(without)).frame)
    of_a = [row["latency_p50_ns"] for row in rows_of() if row["model"] == "a"]
    assert session.cells.cells["latency_ns"][0] == pytest.approx(np.median(of_a))


@pytest.mark.slow
def test_the_interval_of_a_value_is_that_which_a_ratio_has_of_it(session_of) -> None:
    """Of two models that take turns and vary alike: the ratio's is their root sum of squares."""
    session = session_of(list(rows_of(levels={"a": 1e6, "b": 1.1e6})))
    cells = session.comparable.cells
    reach = np.log(cells["latency_high_ns"] / cells["latency_low_ns"]).to_numpy() / 2
    here = faster(session, "a", "b").here
    assert here.low is not None
    assert here.high is not None
    assert np.log(here.high / here.low) / 2 == pytest.approx(np.hypot(*reach))


@pytest.mark.slow
def test_tables_say_which_latency_they_use(session_of) -> None:
    session = session_of(list(rows_of()))
    assert any("rounds" in note for note in session.comparable.notes)
    assert not any("took turns" in note for note in session.cells.notes)


@pytest.mark.thorough
def test_rank_sets_are_as_narrow_as_the_rounds_allow(session_of) -> None:
    taken = ranks_on_platforms(session_of(list(rows_of())))
    alone = ranks_on_platforms(session_of([row | {"round_id": None} for row in rows_of()]))
    assert [(one.rank_low, one.rank_high) for one in taken] == [(n, n) for n in range(1, 7)]
    assert any(one.rank_low != one.rank_high for one in alone)


@pytest.mark.thorough
@pytest.mark.parametrize("repeats", [5, 8])
def test_intervals_and_tests_of_one_model_under_six_names(session_of, repeats: int) -> None:
    """A/A: no test claims more than 5 %, and the intervals hold the value that all share."""
    alike = dict.fromkeys(LEVELS_NS, 1e6)
    claims, tests, inside = 0, 0, []
    for seed in range(20):
        session = session_of(list(rows_of(seed, repeats=repeats, noise=0.03, levels=alike)))
        pairs = significance(session).pairs
        assert pairs is not None
        claims += sum(pair.p_value is not None and pair.p_value <= 0.05 for pair in pairs)
        tests += len(pairs)
        cells = session.comparable.cells
        common = np.exp(np.log(cells["latency_ns"].to_numpy()).mean())
        low, high = (cells[f"latency_{end}_ns"].to_numpy() for end in ("low", "high"))
        inside.append((low <= common) & (common <= high))
    assert tests == 20 * 15
    assert claims / tests <= 0.07  # 5 % and twice the deviation of such a share
    assert 0.90 < np.mean(inside) < 1.0


@pytest.mark.slow
def test_a_model_that_is_not_selected_still_shows_what_the_host_did(session_of) -> None:
    rows = list(rows_of())
    every = session_of(rows).panel.latency[:2, 0]
    some = session_of(rows, model=("a", "b")).panel.latency[:, 0]
    assert some == pytest.approx(every, rel=1e-12)


@pytest.mark.thorough
def test_platforms_chosen_by_source_have_the_values_of_those_chosen_by_runtime(
    make_attempts: Callable[..., pl.LazyFrame],
) -> None:
    facts = {name: {"runtime": "onnx" if name < "d" else "torch"} for name in LEVELS_NS}
    frame = make_attempts(row | facts[str(row["model"])] for row in rows_of())
    by_runtime = make_table("trust/ranks", frame, Selection(runtime="onnx")).frame
    by_source = make_table("trust/ranks", frame, Selection(source="*/onnx/*")).frame
    assert_frame_equal(by_source, by_runtime)


@pytest.mark.slow
def test_a_block_that_is_missing_and_a_cell_that_failed_change_little(session_of) -> None:
    rows = list(rows_of())
    for row in rows[::4]:
        row["block_medians_ns"] = row["block_medians_ns"][:-2]
    rows[7]["status"] = "failed"
    panel = session_of(rows).panel
    assert ratios(panel.latency[:, 0]) == pytest.approx(1.0, abs=0.01)


@pytest.mark.slow
def test_rows_without_medians_of_blocks_are_compared_by_their_process_medians(session_of) -> None:
    rows = [row | {"block_medians_ns": None} for row in rows_of()]
    assert ratios(session_of(rows).panel.latency[:, 0]) == pytest.approx(1.0, abs=0.04)


@pytest.mark.thorough
def test_rounds_of_one_model_leave_its_median(session_of) -> None:
    rows = [row | {"round_id": f"{row['round_id']}/{row['model']}"} for row in rows_of()]
    alone = session_of([row | {"round_id": None} for row in rows])
    assert session_of(rows).panel.latency.tolist() == alone.panel.latency.tolist()
    np.testing.assert_array_equal(session_of(rows).repeats.processes, alone.repeats.processes)


@pytest.mark.thorough
def test_groups_that_never_met_keep_their_own_level(session_of) -> None:
    """Their ratio is that of processes at different times, as without rounds."""
    first = {name: LEVELS_NS[name] for name in "abc"}
    rows = [*rows_of(1, levels=first), *(
        row | {"round_id": f"other {row['round_id']}"}
        for row in rows_of(2, levels={name: LEVELS_NS[name] for name in "def"})
    )]  # fmt: skip
    latency = session_of(rows).panel.latency[:, 0]
    assert ratios(latency[:3], first) == pytest.approx(1.0, abs=0.01)
    levels = session_of([row | {"round_id": None} for row in rows]).repeats.processes[0, :, 0]
    means = np.log(levels).mean(axis=1)
    assert np.log(latency[3:]).mean() - np.log(latency[:3]).mean() == pytest.approx(
        means[3:].mean() - means[:3].mean(), abs=0.03
    )


def test_old_rows_are_the_same_objects(session_of) -> None:
    session = session_of([row | {"round_id": None} for row in rows_of()])
    assert session.compared is session.attempts or session.rounds.rounds == ()
    assert session.comparable.cells["latency_ns"].to_list() == (
        session.cells.cells["latency_ns"].to_list()
    )
