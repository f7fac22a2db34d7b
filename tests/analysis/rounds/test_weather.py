"""What the host did in a round, and the verdict on its comparisons."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fleetrank.analysis.round_effects import FREE, effects_of
from fleetrank.analysis.rounds import MeasuredRound
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table
from fleetrank.analysis.weather import RoundVerdict, verdict_of_rounds, weather_of

VALID, DISTURBED, UNKNOWN = RoundVerdict


def a_round(logs: np.ndarray) -> MeasuredRound:
    """From log medians, (n_cells, n_blocks)."""
    fit = effects_of(logs, FREE)
    return MeasuredRound(
        sweep_id="s", round_id="r", device="d", began_utc=None,
        cells=tuple("abcdef"[: len(logs)]), levels=fit.rows, blocks=fit.columns, rests=fit.rests,
        starts_ns=np.arange(float(logs.shape[1])),
    )  # fmt: skip


def drawn(seed: int, *, host: float, noise: float, cells: int = 3, blocks: int = 10) -> np.ndarray:
    random = np.random.default_rng(seed)
    shared = random.normal(0.0, host, blocks)
    return np.arange(cells)[:, None] + shared + random.normal(0.0, noise, (cells, blocks))


@pytest.mark.thorough
def test_spread_and_rest_are_those_that_were_put_in() -> None:
    found = [weather_of(a_round(drawn(seed, host=0.1, noise=0.02))) for seed in range(200)]
    squares = [(one.spread**2, one.rest**2) for one in found if one.spread is not None]
    assert np.sqrt(np.mean(squares, axis=0)) == pytest.approx([0.1, 0.02], rel=0.1)


@pytest.mark.thorough
def test_noise_of_models_is_not_taken_for_a_change_of_the_host() -> None:
    found = [weather_of(a_round(drawn(seed, host=0.0, noise=0.02))) for seed in range(200)]
    assert np.median([one.spread for one in found]) < 0.007


@pytest.mark.parametrize(
    ("host", "noise", "verdict"),
    [(0.01, 0.01, VALID), (0.3, 0.01, DISTURBED), (0.01, 0.3, DISTURBED)],
)
def test_the_verdict_names_what_changed(host: float, noise: float, verdict: RoundVerdict) -> None:
    found = weather_of(a_round(drawn(1, host=host, noise=noise)))
    assert found.verdict is verdict
    assert (found.reason is None) == (verdict is VALID)


def test_a_jump_is_the_largest_step_between_blocks() -> None:
    host = np.array([0.0, 0.0, 0.5, 0.5, 0.4])
    found = weather_of(a_round(np.array([host, host + 1])))
    assert found.jump == pytest.approx(0.5)


@pytest.mark.parametrize("shape", [(1, 10), (3, 3)])
def test_too_little_is_unknown(shape: tuple[int, int]) -> None:
    found = weather_of(a_round(np.random.default_rng(2).normal(size=shape)))
    assert (found.verdict, found.spread, found.rest) == (UNKNOWN, None, None)
    empty = replace(a_round(np.zeros(shape)), blocks=np.empty(0), rests=np.empty((shape[0], 0)))
    assert weather_of(empty).verdict is UNKNOWN


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ([VALID] * 8 + [DISTURBED] * 2, VALID),
        ([VALID] * 7 + [DISTURBED] * 3, DISTURBED),
        ([VALID] * 4 + [UNKNOWN] * 5, UNKNOWN),
        ([], UNKNOWN),
    ],
)
def test_a_sweep_has_the_verdict_of_its_known_rounds(
    verdicts: list[RoundVerdict], verdict: RoundVerdict
) -> None:
    assert verdict_of_rounds(verdicts) is verdict


def rows_of(host: float) -> list[dict[str, object]]:
    """Four rounds of two models; the host is 20 % slower in the last one."""
    return [
        {
            "model": model, "repeat": number, "round_id": f"r{number}", "design": "rounds",
            "block_medians_ns": (level * np.exp(logs)).round().astype(int).tolist(),
            "block_starts_ns": [10**9 * n for n in range(6)],
            "latency_p50_ns": level * float(np.exp(np.median(logs))),
        }
        for number in range(4)
        for logs in [np.array([0.0, host, 0, host, 0, host]) + np.log(1.2) * (number == 3)]
        for model, level in (("a", 1e6), ("b", 2e6))
    ]  # fmt: skip


def host_table(frame: pl.LazyFrame) -> pl.DataFrame:
    return make_table("trust/host", frame, Selection()).frame


@pytest.mark.slow
def test_the_table_has_the_sweep_and_then_its_rounds(
    make_attempts: Callable[..., pl.LazyFrame],
) -> None:
    found = host_table(make_attempts(rows_of(0.0)))
    assert found["level"].to_list() == ["sweep", *["round"] * 4]
    assert found["verdict"].to_list() == ["valid"] * 5
    assert found["n_rounds"][0] == 4
    above = found["host_percent"][1:].to_list()
    assert (1 + above[3] / 100) / (1 + above[0] / 100) == pytest.approx(1.2, rel=0.01)
    restless = host_table(make_attempts(rows_of(0.2)))
    assert restless["verdict"].to_list() == ["disturbed"] * 5
    assert restless["jump_percent"][0] == pytest.approx(100 * np.expm1(0.2), rel=0.01)


def test_without_rounds_the_table_says_how_to_get_them(
    make_attempts: Callable[..., pl.LazyFrame],
) -> None:
    rows = [row | {"round_id": None} for row in rows_of(0.0)]
    table = make_table("trust/host", make_attempts(rows), Selection())
    assert table.frame.is_empty()
    assert "rounds: {}" in table.notes[0]


@pytest.mark.slow
def test_the_verdict_needs_no_scipy() -> None:
    """A host that measures has none: `analysis` is an extra."""
    script = (
        "import sys; sys.modules['scipy'] = None\n"
        "import numpy as np\n"
        "from fleetrank.analysis.weather import weather_of_medians\n"
        "print(weather_of_medians(1e6 * np.exp(np.random.default_rng(0).normal(0, 0.3, (3, 9)))))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "DISTURBED" in found.stdout, found.stderr
