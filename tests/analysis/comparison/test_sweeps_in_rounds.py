"""Two sweeps whose models took turns: the host's effect on a round is not taken for a change."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from daily import daily
from stored_part import write_part
from wording import has

from fleetrank.analysis.arrays.two_samples import Verdict
from fleetrank.analysis.comparison.comparison import ComparedCell, Comparison, compare_sweeps
from fleetrank.analysis.stored.columns import SCHEMA

MODELS = tuple("abcdefghi")
pytestmark = pytest.mark.slow
REPEATS = 10
Row = dict[str, object]


def rows_of(seed: int, *, slower: float = 1.0, host: float = 0.1) -> list[Row]:
    """Rounds of three of nine models; `a` is slower by a factor."""
    random = np.random.default_rng(seed)
    rows: list[Row] = []
    for repeat in range(REPEATS):
        order = random.permutation(len(MODELS))
        for group in range(3):
            weather = random.normal(0, host)
            for at in order[group::3]:
                level = 1e6 * (at + 1) * (slower if at == 0 else 1.0)
                median = level * np.exp(weather + random.normal(0, 0.02))
                rows.append({
                    "model": MODELS[at], "repeat": repeat, "round_id": f"r{repeat}.{group}",
                    "latency_p50_ns": float(median), "design": "rounds",
                    "block_medians_ns": [round(median)] * 4, "statistic": "median",
                })  # fmt: skip
    return rows


@pytest.fixture
def compared(
    tmp_path: Path, make_attempts: Callable[..., pl.LazyFrame]
) -> Callable[[list[Row], list[Row]], Comparison]:
    def compare(a: list[Row], b: list[Row]) -> Comparison:
        calm = [[row | {"latency_p50_ns": 1e6, "block_medians_ns": None} for row in a]] * 6
        for sweep, rows in (("a", a), ("b", b), *((f"c{n}", one) for n, one in enumerate(calm))):
            frame = make_attempts({**row, "sweep_id": sweep} for row in rows).collect()
            folder = tmp_path / "measurements" / f"sweep_id={sweep}"
            folder.mkdir(parents=True, exist_ok=True)
            frame.select(*SCHEMA).pipe(write_part, folder / "part-000000000000.parquet")
        return compare_sweeps(tmp_path, "a", "b")

    return compare


def of_a(found: Comparison) -> ComparedCell:
    return next(cell for cell in found.cells if cell.model == "a")


@pytest.mark.thorough
@pytest.mark.parametrize("n", daily([10, 7], 7))
def test_a_change_is_found_that_process_medians_hide(compared, n: int) -> None:
    in_turns, alone = [], []
    for seed in range(0, 2 * n, 2):
        sides = rows_of(seed), rows_of(seed + 1, slower=1.15)
        in_turns.append(of_a(compared(*sides)))
        apart = [[row | {"round_id": None} for row in side] for side in sides]
        alone.append(of_a(compared(*apart)))
    n_turns, n_alone = (
        sum(cell.verdict is Verdict.SLOWER for cell in found) for found in (in_turns, alone)
    )
    assert n_turns >= max(0.7 * n, n_alone + 0.2 * n)
    changes = [[np.log(cell.detectable_ratio) for cell in found] for found in (in_turns, alone)]
    assert np.mean(changes[0]) < 0.75 * np.mean(changes[1])


def test_the_medians_that_are_shown_are_those_of_the_processes(compared) -> None:
    rows = rows_of(1)
    medians = [row["latency_p50_ns"] for row in rows if row["model"] == "a"]
    found = of_a(compared(rows, rows_of(2)))
    assert found.median_a_ms == pytest.approx(np.median(medians) / 1e6)


def test_the_notes_say_that_models_took_turns_and_what_cannot_be_compared(compared) -> None:
    both = compared(rows_of(1), rows_of(2)).table.notes
    assert any("took turns" in note for note in both)
    mixed = compared(rows_of(1), [row | {"round_id": None} for row in rows_of(2)]).table.notes
    assert any(has(note, "rounds", "other") for note in mixed)
    neither = compared(*([row | {"round_id": None} for row in rows_of(n)] for n in (1, 2)))
    assert not any("turns" in note for note in neither.table.notes)
