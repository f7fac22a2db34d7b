"""Metrics against closed forms, SciPy and slow versions."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from fleetrank.orchestrator.evaluation.quality_metrics import (
    choice_metrics,
    mean_accuracy,
    picture_metrics,
    share_metric,
    text_metrics,
)


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary() -> None:
    vocabulary, tokens, n_bytes = 512, np.array([10, 10, 3]), [40, 13]
    figures = np.stack(
        [-tokens * math.log(vocabulary), tokens * 0, tokens * 0, tokens], axis=1
    ).astype(float)
    found = {one.name: one for one in text_metrics(figures, [0, 0, 1], n_bytes)}
    assert found["perplexity"].value == pytest.approx(vocabulary, rel=1e-12)
    assert found["bits_per_byte"].value == pytest.approx(9 * 23 / 53, rel=1e-12)
    assert found["perplexity"].low is None
    assert found["token_top1"].n_items == 23


def test_perplexity_is_of_all_tokens_and_not_a_mean_of_windows() -> None:
    figures = np.array([[-1.0, 0, 0, 1], [-90.0, 9, 9, 30]])
    found = {one.name: one.value for one in text_metrics(figures, [0, 0], [31])}
    assert found["perplexity"] == pytest.approx(math.exp(91 / 31))
    assert found["token_top1"] == pytest.approx(900 / 31)


def test_a_perplexity_beyond_floats_is_missing() -> None:
    found = text_metrics(np.array([[-1e6, 0, 0, 1.0]]), [0], [1])
    assert found[0].value is None
    assert found[1].value == pytest.approx(1e6 / math.log(2))


def test_nine_documents_give_an_interval_around_the_figure() -> None:
    rng = np.random.default_rng(1)
    figures = np.stack([-rng.uniform(50, 90, 9), *rng.uniform(0, 9, (2, 9)), np.full(9, 30)], 1)
    for one in text_metrics(figures, range(9), [100] * 9):
        assert one.low < one.value < one.high
    assert text_metrics(figures[:8], range(8), [100] * 8)[0].low is None


@pytest.mark.parametrize(("right", "n"), [(0, 5), (3, 5), (5, 5), (871, 1000)])
def test_a_share_has_wilson_s_interval(right: int, n: int) -> None:
    wanted = binomtest(right, n).proportion_ci(method="wilson")
    found = share_metric("acc", np.arange(n) < right)
    assert found.value == pytest.approx(100 * right / n)
    assert found.low == pytest.approx(100 * wanted.low, abs=1e-4)
    assert found.high == pytest.approx(100 * wanted.high, abs=1e-4)
    assert found.right_items == np.packbits(np.arange(n) < right).tobytes().hex()


def test_the_longer_choice_wins_only_per_byte() -> None:
    log_probabilities = np.array([[-4.0, -6.0]] * 4)
    choice_bytes = np.array([[2, 12]] * 4)
    labels = np.array([1, 1, 1, 0])
    found = {
        one.name: one
        for one in choice_metrics(log_probabilities, choice_bytes, labels, has_f1=True)
    }
    assert (found["acc"].value, found["acc_norm"].value) == (25.0, 75.0)
    assert found["acc"].baseline == 75.0
    assert found["f1"].value == 0
    assert found["f1"].baseline == pytest.approx(600 / 7)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_choice_that_is_not_finite_is_wrong(bad: float) -> None:
    log_probabilities = np.array([[bad, -1.0], [-1.0, bad], [-1.0, -2.0], [-2.0, -1.0]])
    for labels in ([0, 1, 0, 1], [1, 0, 0, 1]):
        acc, acc_norm, f1 = choice_metrics(
            log_probabilities, np.ones((4, 2), int), np.array(labels), has_f1=True
        )
        assert (acc.value, acc_norm.value, f1.value) == (50.0, 50.0, 50.0)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_text_with_scores_that_are_not_finite_has_no_perplexity(bad: float) -> None:
    figures = np.tile([-9.0, 3, 4, 5], (9, 1))
    figures[2] = [bad, 1, 2, 5]
    found = text_metrics(figures, range(9), [10] * 9)
    for one in found[:2]:
        assert (one.value, one.low, one.high) == (None, None, None)
    assert found[2].value == pytest.approx(100 * 25 / 45)
    assert found[2].low is not None


def test_top5_stands_beside_always_giving_the_five_most_frequent_classes() -> None:
    figures = np.tile([-1.0, 0, 1, 1], (12, 1))
    _, five = picture_metrics(figures, [0, 1, 2, 3, 4, 5] * 2)
    assert five.baseline == pytest.approx(100 * 5 / 6)
    _, five = picture_metrics(figures[:3], [0, 1, 1])
    assert five.baseline == 100.0


def test_f1_without_any_one_is_missing() -> None:
    found = choice_metrics(
        np.array([[0.0, -1.0]]), np.ones((1, 2), int), np.array([0]), has_f1=True
    )
    assert found[-1].value is None


def test_images_count_places() -> None:
    figures = np.array([[-1.0, 1, 1, 1], [-2.0, 0, 1, 1], [-3.0, 0, 0, 1]])
    first, five = picture_metrics(figures, [2, 2, 0])
    assert first.value == pytest.approx(100 / 3)
    assert five.value == pytest.approx(200 / 3)
    assert first.baseline == pytest.approx(200 / 3)


def test_the_mean_counts_each_data_set_once() -> None:
    rows = [
        {"quality_metric": "acc", "quality": 90.0, "baseline": 50.0, "n_items": 1000},
        {"quality_metric": "acc_norm", "quality": 0.0, "baseline": 0.0, "n_items": 1000},
        {"quality_metric": "acc", "quality": 50.0, "baseline": 60.0, "n_items": 10},
    ]
    found = mean_accuracy(rows)
    assert (found.value, found.baseline, found.n_items) == (70.0, 55.0, 1010)
