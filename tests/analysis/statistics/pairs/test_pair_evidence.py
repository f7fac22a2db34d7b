"""The answer stays the same, or says what changed, while further sweeps of one host are stored."""

import math
from collections.abc import Callable, Iterable

import numpy as np
import polars as pl
import pytest
from wording import has

from fleetrank.analysis.arrays.two_samples import PRIOR_SPREAD, between_sessions
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.pair_answer import PairAnswer, pair_sentences
from fleetrank.analysis.statistics.pairs.pair_counts import pair_counts
from fleetrank.analysis.statistics.pairs.pair_evidence import stored_figures
from fleetrank.analysis.statistics.pairs.pairs import faster
from fleetrank.analysis.stored.selection import Selection

pytestmark = pytest.mark.slow

Make = Callable[[Iterable[dict[str, object]]], pl.LazyFrame]
LATENCIES = {"squeeze": 7.48e6, "mobile": 8.78e6, "resnet": 34.15e6, "vit": 60e6}


def sweep(
    name: str, hour: int, slower: float = 1.0, *, models: Iterable[str] = LATENCIES, **facts: object
) -> list[dict[str, object]]:
    """Five processes of each model, in random order, on a host of one speed."""
    rng = np.random.default_rng(hour)
    return [
        {
            "sweep_id": name, "model": model, "repeat": repeat, "started_utc": hour,
            "device": "local", "design": "shuffled",
            "latency_p50_ns": slower * LATENCIES[model] * math.exp(rng.normal(0, 0.02)), **facts,
        }
        for model in models
        for repeat in range(5)
    ]  # fmt: skip


def turns(name: str, hour: int, *models: str) -> list[dict[str, object]]:
    rows = sweep(name, hour, models=models, design="rounds")
    return [{**row, "round_id": f"r{row['repeat']}"} for row in rows]


def ask(make: Make, rows: list[dict[str, object]], a: str, b: str, **chosen: object) -> PairAnswer:
    return faster(Session(make(rows), Selection(**chosen)), a, b)


def test_a_busy_run_of_one_model_and_an_ab_leave_the_answer_as_it_was(make_attempts: Make) -> None:
    rows = [
        *sweep("s1", 0),
        *sweep("s1", 0, 1.4, models=["squeeze", "mobile"], runtime="tflite"),
    ]
    first = ask(make_attempts, rows, "squeeze", "mobile").here
    assert first.model_a == "squeeze"
    rows += sweep("run", 1, 4.3, models=["squeeze"])
    busy = ask(make_attempts, rows, "squeeze", "mobile")
    assert busy.here == first if busy.here.reason is None else busy.here.ratio == first.ratio
    assert has(
        pair_sentences(busy), "s1 measured both", "not used: squeeze of run", "times as long"
    )
    rows += turns("ab", 2, "squeeze", "mobile")
    paired = ask(make_attempts, rows, "squeeze", "mobile").here
    assert paired.platform_key == first.platform_key
    assert paired.ratio == pytest.approx(8.78 / 7.48, rel=0.06)
    assert paired.reason is None
    other = ask(make_attempts, rows, "resnet", "mobile").here
    assert other.ratio == pytest.approx(34.15 / 8.78, rel=0.06), "one sweep has both"
    assert has(str(other.reason), "mobile of ab")


def test_figures_of_two_sessions_are_compared_as_weakly_as_they_deserve(
    make_attempts: Make,
) -> None:
    quick, slow = {"models": ["squeeze"]}, {"models": ["mobile"]}
    rows = [*sweep("s1", 0, **quick), *sweep("s2", 1, **slow)]
    alone = ask(make_attempts, rows, "squeeze", "mobile").here
    assert math.log(alone.high / alone.ratio) > 2 * PRIOR_SPREAD
    assert has(str(alone.reason), "no sweep measured both", "s1", "s2")
    single = [row for row in rows if row["repeat"] == 0]
    once = ask(make_attempts, single, "squeeze", "mobile").here
    assert math.log(once.high / once.ratio) > 2 * PRIOR_SPREAD, "also of one process each"
    rows += sweep("s3", 2, 4.3, models=["squeeze", "resnet"]) + sweep("s4", 3, models=["resnet"])
    seen = ask(make_attempts, rows, "squeeze", "mobile").here
    assert seen.low < 0.5, "sessions of this host differed by a factor of 4"


@pytest.mark.parametrize("facts", [{"flags": ["throttled"]}, {"stop_reason": "min_time"}])
def test_a_hot_or_a_sustained_sweep_is_no_evidence(make_attempts: Make, facts) -> None:
    hot = sweep("hot", 1, 3.0, models=["squeeze"], **facts)
    hot += sweep("hot", 1, models=["mobile"], **facts)
    here = ask(make_attempts, [*sweep("s1", 0), *hot], "squeeze", "mobile").here
    assert here.model_a == "squeeze"
    assert here.ratio == pytest.approx(8.78 / 7.48, rel=0.05)


def test_an_unlike_figure_of_several_versions_has_no_sweep_to_leave_out(
    make_attempts: Make,
) -> None:
    rows = [*sweep("s1", 0), *sweep("s2", 1, models=["resnet"])]
    for row in rows:
        if row["model"] == "squeeze" and row["repeat"]:
            row["runtime_version"] = "1.0.1"
    session = Session(make_attempts(rows), Selection())
    at, models = session.panel.keys.index("local/onnx/b1/t1"), session.panel.models
    unlike = [(models.index("squeeze"), at), (models.index("resnet"), at)]
    runs = stored_figures(session, unlike=unlike).runs[at]
    assert np.isfinite(runs.stated).any(axis=1).tolist() == [one != "squeeze" for one in models]
    assert np.isfinite(runs.logs[models.index("resnet")]).tolist() == [True, False]


def test_here_does_not_move_when_another_runtime_measures_more(make_attempts: Make) -> None:
    rows = sweep("s1", 0, models=["squeeze", "mobile"])
    before = ask(make_attempts, rows, "squeeze", "mobile").here.platform_key
    rows += sweep("s2", 1, runtime="tflite")
    assert ask(make_attempts, rows, "squeeze", "mobile").here.platform_key == before


def test_pairs_of_all_models_use_the_same_evidence(make_attempts: Make) -> None:
    rows = [*sweep("s1", 0), *sweep("run", 1, 4.3, models=["squeeze"])]
    counts, _ = pair_counts(Session(make_attempts(rows), Selection()), "squeeze")
    assert {(one.model_a, one.model_b) for one in counts} == {
        ("squeeze", "mobile"), ("squeeze", "resnet"), ("squeeze", "vit"),
    }  # fmt: skip


def test_intervals_of_two_sessions_hold_the_true_ratio(make_attempts: Make) -> None:
    """Sessions differ by 20 %: those of the other models say so."""
    inside = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        logs = np.log([1.0, 2.0, 3.0, 4.0])[:, None] + 0.2 * rng.normal(size=(1, 6))
        logs += 0.01 * rng.normal(size=logs.shape)
        error = (logs[1, 0] - logs[0, 1]) - math.log(2)
        logs[1, 1:] = logs[0, :1] = np.nan
        inside.append(abs(error) <= between_sessions(logs)[0])
    assert 0.93 < np.mean(inside) < 0.995


def test_more_models_are_no_further_sessions() -> None:
    logs = np.log([[1.0, 1.1, 0.9, 1.05]])
    assert between_sessions(np.tile(logs, (20, 1))) == pytest.approx(between_sessions(logs))
    apart = np.full((2, 4), np.nan)
    apart[0, :2], apart[1, 2:] = logs[0, :2], logs[0, 2:]
    assert between_sessions(apart).n == 3  # two differences in two groups of sessions
