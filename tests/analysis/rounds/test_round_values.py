"""Models that took turns are ranked without what the host did; all other rows stay as they are."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.rounds import round_values
from fleetrank.analysis.statistics.measured.latency_tables import latency_table
from fleetrank.analysis.statistics.pairs.pairs import faster
from fleetrank.analysis.stored.selection import Selection

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


@pytest.mark.slow
def test_a_model_that_is_not_selected_still_shows_what_the_host_did(session_of) -> None:
    rows = list(rows_of())
    every = session_of(rows).panel.latency[:2, 0]
    some = session_of(rows, model=("a", "b")).panel.latency[:, 0]
    assert some == pytest.approx(every, rel=1e-12)


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


def test_models_that_never_met_keep_the_level_of_their_own_rounds(make_attempts) -> None:
    """The rounds of c and d all met a slow host; a model alone in its rounds has no effect."""
    rows = [
        {"model": model, "repeat": number, "round_id": f"{models} {number}",
         "latency_p50_ns": 1e6 * slow * (1 + number)}
        for models, slow in (("ab", 1), ("cd", 3), ("e", 1))
        for number in range(2) for model in models
    ]  # fmt: skip
    frame = make_attempts(rows)
    found = round_values(frame, frame)
    above = {one.round_id: one.above for one in found.rounds}
    half = np.log(2) / 2
    assert [above[name] for name in ("ab 0", "cd 0", "ab 1", "cd 1")] == pytest.approx(
        [-half, -half, half, half]
    )
    assert above["e 0"] is None
    assert sorted(found.cells["latency_ns"]) == pytest.approx(
        [2**0.5 * 1e6] * 2 + [2**0.5 * 3e6] * 2
    )


def test_old_rows_are_the_same_objects(session_of) -> None:
    session = session_of([row | {"round_id": None} for row in rows_of()])
    assert session.compared is session.attempts or session.rounds.rounds == ()
    assert session.comparable.cells["latency_ns"].to_list() == (
        session.cells.cells["latency_ns"].to_list()
    )
