"""Figures of cases to metrics, each with its interval where one is known."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Figures = NDArray[np.float64]
"""(n_cases, 4), as `scoring.N_FIGURES` says."""
_Z = 1.959964
"""Of the normal distribution: 95 % lie within."""
_FEWEST_DOCUMENTS = 9
"""Below this the bootstrap's quantiles are too narrow, as for rank transfer."""
_DRAWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric; `None` where a figure is undefined.

    Attributes:
        name: as in column `quality_metric`.
        low, high: 95 % interval.
        n_items: what it counts: tokens, examples or images.
        right_items: of a share, whether each item was right: hexadecimal bits, the first item
            first.
        window_losses: of a perplexity, JSON: sum of -ln p and number of tokens of each window.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    n_items: int = 0
    right_items: str | None = None
    window_losses: str | None = None


def is_finite(figures: Figures) -> bool:
    """Whether the model gave every target a probability."""
    return bool(np.isfinite(figures[:, 0]).all())


def text_metrics(
    figures: Figures, documents: Sequence[int], n_bytes: Sequence[int]
) -> list[Metric]:
    """Perplexity, bits per byte and accuracies of the next token.

    Perplexity is exp(sum of -ln p / number of tokens) over the whole text: the mean over parts
    would be too high (Jensen's inequality). Bits per byte is sum of -ln p / (ln 2 x UTF-8 bytes of
    the original text), as lm-evaluation-harness defines both.

    Args:
        figures: of the windows, (n_windows, 4).
        documents: number of the document of each window.
        n_bytes: of each document.
    """
    sums = np.zeros((len(n_bytes), figures.shape[1]))
    np.add.at(sums, np.asarray(documents), figures)
    nll, first, five, tokens = -sums[:, 0], sums[:, 1], sums[:, 2], sums[:, 3]
    parts = (
        ("perplexity", nll, tokens, _exp),
        ("bits_per_byte", nll / math.log(2), np.asarray(n_bytes, dtype=float), float),
        ("token_top1", 100 * first, tokens, float),
        ("token_top5", 100 * five, tokens, float),
    )
    draws, n = None, len(n_bytes)
    if n >= _FEWEST_DOCUMENTS:
        draws = np.random.default_rng(0).integers(0, n, (_DRAWS, n))
    found = []
    for name, over, under, shown in parts:
        is_known = bool(np.isfinite(over).all())
        low, high = _interval(over, under, draws if is_known else None)
        found.append(
            Metric(
                name=name,
                value=shown(float(over.sum() / under.sum())) if is_known else None,
                low=None if low is None else shown(low),
                high=None if high is None else shown(high),
                n_items=int(tokens.sum()),
            )
        )
    if is_finite(figures):
        losses = json.dumps(np.stack([-figures[:, 0], figures[:, 3]], axis=1).tolist())
        found[0] = replace(found[0], window_losses=losses)
    return found


def _exp(mean: float) -> float | None:
    try:
        return math.exp(mean)
    except OverflowError:
        return None


def _interval(
    over: Figures, under: Figures, draws: NDArray[np.int64] | None
) -> tuple[float | None, float | None]:
    """Percentiles of the ratio of sums over documents drawn with replacement."""
    if draws is None:
        return None, None
    ratios = over[draws].sum(axis=1) / under[draws].sum(axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)


def share_metric(name: str, is_right: NDArray[np.bool_], baseline: float | None = None) -> Metric:
    """The share of right items in per cent, with Wilson's interval.

    Source: Wilson 1927.
    """
    n_items = len(is_right)
    share = int(is_right.sum()) / n_items
    middle = (share + _Z**2 / (2 * n_items)) / (1 + _Z**2 / n_items)
    spread = math.sqrt(share * (1 - share) / n_items + _Z**2 / (4 * n_items**2))
    half = _Z / (1 + _Z**2 / n_items) * spread
    return Metric(
        name=name,
        value=100 * share,
        low=100 * max(0.0, middle - half),
        high=100 * min(1.0, middle + half),
        baseline=baseline,
        n_items=n_items,
        right_items=np.packbits(is_right).tobytes().hex(),
    )


def choice_metrics(
    log_probabilities: Figures,
    choice_bytes: NDArray[np.int64],
    labels: NDArray[np.int64],
    *,
    has_f1: bool,
) -> list[Metric]:
    """Accuracy of the more probable choice, and of the more probable one per byte.

    An example is answered wrongly if the probability of a choice is not finite.

    Args:
        log_probabilities: (n_examples, 2).
        choice_bytes: UTF-8 bytes of each choice, (n_examples, 2).
        labels: 0 or 1, (n_examples,).
        has_f1: also the F1 of label 1.
    """  # fmt: skip
    n, n_ones = len(labels), int(labels.sum())
    majority = 100 * max(n_ones, n - n_ones) / n
    has_both = np.isfinite(log_probabilities).all(axis=1)
    taken, per_byte = (
        np.where(has_both, scores.argmax(axis=1), 1 - labels)
        for scores in (log_probabilities, log_probabilities / choice_bytes)
    )
    found = [
        share_metric("acc", taken == labels, majority),
        share_metric("acc_norm", per_byte == labels, majority),
    ]
    if has_f1:
        n_both, n_taken = int((taken * labels).sum()), int(taken.sum())
        value = 200 * n_both / (n_taken + n_ones) if n_taken + n_ones else None
        # Always answering 1 has a precision of the share of ones, and finds all.
        always = 200 * n_ones / (n + n_ones) if n_ones else None
        found.append(Metric(name="f1", value=value, baseline=always, n_items=n))
    return found


def mean_accuracy(rows: Sequence[Mapping[str, object]]) -> Metric:
    """The plain mean of the accuracies of several data sets."""
    of_acc = [row for row in rows if row["quality_metric"] == "acc"]
    values, baselines = (
        [float(str(row[name])) for row in of_acc] for name in ("quality", "baseline")
    )
    return Metric(
        name="acc",
        value=sum(values) / len(values),
        baseline=sum(baselines) / len(baselines),
        n_items=sum(int(str(row["n_items"])) for row in of_acc),
    )


def picture_metrics(figures: Figures, labels: Sequence[int]) -> list[Metric]:
    """Share of images whose class is the first one, and among the first five.

    Both stand beside always giving the most frequent classes, one or five: with five classes, every
    model finds all among its first five.
    """
    n = len(labels)
    counts = np.sort(np.bincount(labels))
    return [
        share_metric(name, figures[:, place] > 0, 100 * int(counts[-k:].sum()) / n)
        for name, place, k in (("top1", 1, 1), ("top5", 2, 5))
    ]
