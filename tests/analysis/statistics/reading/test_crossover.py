"""From which length on is a repetition faster: held against brute force and known answers."""

import math

import numpy as np
import pytest
from daily import daily
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.arrays.bootstrap import resampled_medians
from fleetrank.analysis.statistics.reading_cells import DRAWS, CellFacts, ReadingCell, ReadingPlace
from fleetrank.analysis.statistics.strategies import (
    Repetition,
    changes_of_order,
    crossing_by_operations,
    crossings,
    crossover_of,
    end_points,
    time_at,
    ways_of,
)
from fleetrank.foundation.inputs import Workload
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.models.networks.cost import call_cost, calls_of

LENGTHS = np.array([256.0, 512.0, 1024.0, 2048.0])


def segments(size: int) -> Repetition:
    return Repetition(first=size, step=size)


@given(st.integers(1, 300), st.integers(1, 60), st.integers(1, 60))
def test_windows_are_counted_as_they_are_when_slid_over_the_text(
    tokens: int, first: int, step: int
) -> None:
    step = min(first, step)
    end, n = first, 1
    while end < tokens:
        end, n = end + step, n + 1
    assert Repetition(first=first, step=step).inferences(tokens) == n
    assert segments(first).inferences(tokens) == math.ceil(tokens / first)


def test_a_time_between_two_lengths_is_exact_for_a_quadratic() -> None:
    times = (3 * LENGTHS + 0.01 * LENGTHS**2)[None]
    for tokens in (256.0, 300.0, 700.0, 1999.0, 2048.0):
        found = time_at(LENGTHS, times, np.array([tokens]))
        assert found[0] == pytest.approx(3 * tokens + 0.01 * tokens**2)


@pytest.mark.slow
@pytest.mark.parametrize("repetition", [segments(128), Repetition(first=128, step=64)])
@pytest.mark.parametrize("seed", range(20))
def test_the_crossing_is_the_one_that_every_token_tried_gives(
    repetition: Repetition, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    times = LENGTHS * (1 + rng.uniform(0.0002, 0.002) * LENGTHS)
    one = np.array([rng.uniform(100, 400)])
    (found,) = crossings(LENGTHS, times[None], one, repetition)
    tried = np.arange(256.0, 2049.0)
    at_once = np.interp(tried, LENGTHS, times / LENGTHS) * tried
    slower = one * (1 + (tried - repetition.first) / repetition.step) >= at_once
    if not slower.any():
        assert found == -np.inf
    elif slower[-1]:
        assert found == np.inf
    else:
        assert found == pytest.approx(tried[slower][-1], abs=1)


def test_the_last_of_several_crossings_counts_and_they_are_counted() -> None:
    times = np.array([[300.0, 450.0, 1100.0, 1900.0]])
    one = np.array([128.0])  # 1 a token: faster at 256, slower at 512, faster, slower
    assert crossings(LENGTHS, times, one, segments(128))[0] == np.inf
    assert changes_of_order(LENGTHS, times[0], 128.0, segments(128)) == 3


def test_each_draw_has_its_own_crossing() -> None:
    times = np.array([LENGTHS, LENGTHS * (0.5 + LENGTHS / 2000), 3 * LENGTHS])
    found = crossings(LENGTHS, times, np.full(3, 1.01 * 128), segments(128))
    assert found.tolist() == [np.inf, pytest.approx(1020), -np.inf]


def test_an_interval_may_have_an_end_that_is_infinite() -> None:
    draws = np.array([*np.arange(900.0), *([np.inf] * 100)])
    assert end_points(draws) == (24.0, np.inf)
    some = np.random.default_rng(1).normal(size=1001)
    assert end_points(some) == pytest.approx(tuple(np.quantile(some, [0.025, 0.975])))


OPT_350M = {"weights": 302e6, "attention": 2 * 24 * 1024}
"""Multiplied weights without the head, and products for each pair of tokens: 2 x layers x width."""


def test_operations_give_the_published_rule_of_the_crossover() -> None:
    """W / (4 L H h) + 1.5 (S + k + 2): a quarter of a pass more for each half of a segment."""
    weights, attention = OPT_350M.values()
    lengths = np.array([128, 512, 2048])
    operations = lengths * (weights + attention * lengths)
    one = 1024 * 1.5 * (weights + attention * (1024 + 32 + 2))
    found = crossing_by_operations(lengths, operations, one, segments(1024))
    assert found == pytest.approx(weights / (2 * attention) + 1.5 * (1024 + 32 + 2))
    assert found == pytest.approx(4660, rel=0.001)


@pytest.mark.parametrize("repetition", [segments(128), Repetition(first=256, step=128)])
def test_the_crossing_by_operations_is_the_one_that_every_length_tried_gives(
    repetition: Repetition,
) -> None:
    weights, attention, head = 85e6, 2 * 12 * 768, 38e6

    def at_once(tokens: float) -> float:
        return head + tokens * (weights + attention * tokens)

    lengths = np.array([64, 256, 512, 1024])
    operations = np.array([round(at_once(float(one))) for one in lengths], dtype=float)
    passes = 1.6 if repetition.first == 128 else 1.0
    one = passes * at_once(repetition.first)
    found = crossing_by_operations(lengths, operations, one, repetition)
    tried = np.arange(repetition.first + 1.0, 20_000)
    slower = tried[one * (1 + (tried - repetition.first) / repetition.step) >= at_once(tried)]
    assert found == pytest.approx(slower[-1], abs=1.5)


@pytest.mark.thorough
@pytest.mark.parametrize("model", ["stories15m", "opt-125m", "smollm-135m"])
@pytest.mark.parametrize("text", ["segment@128", "segment@512", "segment@256+k8+n16"])
def test_the_crossing_by_the_operations_of_exported_networks_is_exact(
    model: str, text: str
) -> None:
    shape = load_language_zoo()[model].language
    assert shape is not None

    def operations(one: str) -> float:
        return 2.0 * call_cost(shape, calls_of(Workload.parse(one))[-1]).macs

    lengths, size = np.array([64, 512, 1024]), Workload.parse(text).length or 0
    counted = np.array([operations(f"prefill@{length}") for length in lengths])
    found = crossing_by_operations(lengths, counted, operations(text), segments(size))
    tokens = size
    while operations(f"prefill@{tokens}") < tokens / size * operations(text):
        tokens += 1
    assert found == pytest.approx(tokens, abs=1.01)


def test_a_repetition_that_is_always_cheaper_counts_from_its_first_length() -> None:
    lengths = np.array([64, 256, 512])
    found = crossing_by_operations(lengths, lengths * (10.0 + lengths), 128.0, segments(128))
    assert found == 128


@pytest.mark.parametrize(
    ("lengths", "operations"),
    [([64, 128], [64.0, 128.0]), ([64, 128, 256], [64.0, 128.0, 256.0]),
     ([64, 128, 256, 512], [1.0, 2.0, 9.0, 10.0])],
)  # fmt: skip
def test_operations_without_a_known_square_give_no_crossing(
    lengths: list[int], operations: list[float]
) -> None:
    found = crossing_by_operations(np.array(lengths), np.array(operations), 1e9, segments(64))
    assert found is None


def _cell(text: str, median: float, noise: float, rng: np.random.Generator) -> ReadingCell:
    processes = median * np.exp(rng.normal(0, noise, 5))
    return ReadingCell(
        workload=Workload.parse(text),
        latency_ns=float(np.median(processes)),
        draws_ns=resampled_medians(processes[None], DRAWS, rng)[:, 0],
        facts=CellFacts(n_repeats=5),
        flops=None,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("noise", daily([0.005, 0.02, 0.05], 0.02))
@pytest.mark.parametrize("true", daily([700.0, 1450.0], 1450.0))
def test_a_known_crossover_is_inside_its_interval_in_nine_of_ten_data_sets(
    noise: float, true: float
) -> None:
    """A device that takes T + T^2 / 2000, and segments whose rate vanilla has at `true`."""
    rng, n_sets, n_inside, points = np.random.default_rng(5), 200, 0, []
    for _ in range(n_sets):
        prompts = {
            length: _cell(f"prefill@{length}", length * (1 + length / 2000), noise, rng)
            for length in (256, 512, 1024, 2048, 4096)
        }
        segment = _cell("segment@128+k8+n16", 128 * (1 + true / 2000), noise, rng)
        place = ReadingPlace(
            model="m", platform_key="p", context=None, prompts=prompts, segments=(segment,),
            failed={}, n_sweeps=1,
        )  # fmt: skip
        found = crossover_of(place, list(ways_of(place, None))[-1])
        low, high = found.low_tokens or 0, found.high_tokens or math.inf
        n_inside += low <= true <= high
        points.append(found.crossover_tokens or math.inf)
    assert n_inside >= 0.9 * n_sets
    assert np.median(points) == pytest.approx(true, rel=0.03)
