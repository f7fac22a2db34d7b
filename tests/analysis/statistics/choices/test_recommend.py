"""The decision tree answered from rows whose answers are known."""

import numpy as np
import pytest
from wording import has

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel import conditions
from fleetrank.analysis.panel.conditions import MAX_LISTED_PAIRS
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table


@pytest.fixture
def fleet(make_attempts):
    """Nine CNNs that rank alike everywhere; four transformers that rank at random on the edge."""
    odd = [7.0, 1.0, 3.0, 100.0]
    rows = []
    for device, tier in (("g", "gpu"), ("e1", "edge"), ("e2", "edge")):
        for n in range(13):
            is_cnn = n < 9
            latency = (n + 1.0) if is_cnn or tier == "gpu" else odd[n - 9]
            rows.append(
                {
                    "model": f"m{n:02}", "device": device, "tier": tier,
                    "family": "mobile_cnn" if is_cnn else "transformer",
                    "latency_p50_ns": latency * 1000, "latency_p99_ns": latency * 1500,
                    "flops": n + 1, "accuracy_top1": 60.0 + n,
                }
            )  # fmt: skip
    return make_attempts(rows)


def answers(frame, goal: str, **selection: object) -> dict[str, dict[str, object]]:
    table = make_table("choose", frame, Selection(settings=(("goal", goal),), **selection))  # type: ignore[arg-type]
    return {f"{row['figure']} {row['scope']}": row for row in table.frame.to_dicts()}


@pytest.mark.slow
def test_deployment_tells_cnns_from_transformers(fleet) -> None:
    rows = answers(fleet, "multi", source_tier="gpu", target_tier="edge")
    cnn = rows["rho of latency, CNNs gpu -> edge"]
    assert has(cnn["advice"], "CNNs", "reference", "device")
    assert str(cnn["answer"]).startswith(
        "CNN rankings (9 models) transfer from gpu to edge with rho 1.00 [1.00, 1.00] "
        "over 2 pairs of device models, FLOPs explain "
    )
    other = rows["leave-one-out error, transformers and hybrids gpu -> edge"]
    assert (other["n_models"], other["low"]) == (4, None)
    assert float(str(other["value"])) > 0.1
    assert has(str(other["answer"]), "4", "transformer", "hybrid")
    assert str(other["advice"]).startswith("measure them on the target")


@pytest.mark.slow
def test_rho_between_tiers_is_told_once_and_errors_in_both_directions(fleet) -> None:
    rows = answers(fleet, "")
    assert len([name for name in rows if name.startswith("rho of latency between")]) == 1
    assert len([name for name in rows if name.startswith("rho of latency, CNNs")]) == 2
    assert len([name for name in rows if name.startswith("leave-one-out")]) == 3


@pytest.mark.slow
def test_repeats_give_the_ceiling_that_stands_beside_rho(make_attempts) -> None:
    frame = make_attempts(
        {
            "model": f"m{n}", "device": device, "repeat": repeat, "family": "mobile_cnn",
            "latency_p50_ns": 1000.0 * (n + 1) + repeat,
        }
        for device in ("a", "b")
        for n in range(6)
        for repeat in range(4)
    )  # fmt: skip
    (row,) = [row for row in answers(frame, "multi").values() if row["value"] is not None]
    assert row["ceiling"] == pytest.approx(1)
    assert ", ceiling 1.00: " in str(row["answer"])


@pytest.mark.slow
def test_inside_a_tier_a_pair_counts_once(fleet) -> None:
    rows = answers(fleet, "paper")
    assert rows["rho of latency inside a tier edge -> edge"]["n_pairs"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("most_listed", [MAX_LISTED_PAIRS, 0])
def test_a_rho_has_the_figures_of_table_transfer(make_attempts, monkeypatch, most_listed) -> None:
    monkeypatch.setattr(conditions, "MAX_LISTED_PAIRS", most_listed)
    rng = np.random.default_rng(0)
    frame = make_attempts(
        {
            "model": f"m{n:02}", "device": device, "device_model": device, "tier": tier,
            "family": "mobile_cnn", "flops": n, "latency_p50_ns": 1000.0 * n * value,
        }
        for device, tier in (("g", "gpu"), ("c", "cpu"), ("e1", "edge"), ("e2", "edge"))
        for n, value in enumerate(np.exp(rng.normal(size=10)), 1)
    )  # fmt: skip
    table = make_table("transfer", frame, Selection()).frame
    between = {"level": "tier", "measure": "latency", "source": "gpu", "target": "edge"}
    (shown,) = [row for row in table.to_dicts() if between.items() <= row.items()]
    (row,) = [
        row
        for row in answers(frame, "paper").values()
        if "gpu" in row["scope"] and "edge" in row["scope"]
    ]
    assert (row["low"], row["high"]) == (shown["low"], shown["high"])
    assert f"explain {shown['residual_null_mean']:.2f}" in str(row["answer"])
    assert f"p = {shown['residual_p']:.2g})" in str(row["answer"])


@pytest.mark.slow
def test_exploration_by_flops(fleet) -> None:
    (row,) = answers(fleet, "early").values()
    assert (row["n_models"], row["n_pairs"]) == (13, 3)
    assert has(str(row["answer"]), "FLOPs", "13", "models")


@pytest.mark.slow
def test_production_names_the_worst_tail(fleet) -> None:
    (row,) = answers(fleet, "production").values()
    assert row["value"] == pytest.approx(1.5)
    assert has(str(row["answer"]), "measure", "target")


@pytest.mark.slow
def test_search_gives_the_frontier_beside_chance(fleet) -> None:
    (row,) = answers(fleet, "architecture").values()
    assert "(chance " in str(row["answer"])
    assert row["n_pairs"] == 6


@pytest.mark.slow
def test_a_frontier_of_few_models_is_no_answer(make_grid) -> None:
    rng = np.random.default_rng(0)
    for n_models, is_known in ((1, False), (4, False), (5, True)):
        grid = {f"d{n}": rng.uniform(1e6, 2e6, n_models).tolist() for n in range(3)}
        frame = make_grid(grid, accuracy=rng.uniform(60, 80, n_models).tolist())
        (found,) = answers(frame, "architecture search").values()
        assert (found["value"] is not None) is is_known
        if not is_known:
            assert has(str(found["answer"]), "Unknown here", f"n = {n_models}", "below 5")


@pytest.mark.slow
def test_one_platform_gets_answers_that_say_what_is_missing(make_grid) -> None:
    rows = answers(make_grid({"d": [1.0, 2, 3, 4, 5]}), "")
    assert len(rows) == 7
    assert all(row["reason"] for row in rows.values())
    assert has(rows["rho of latency, CNNs -"]["advice"], "measure", "CNNs", "targets")


def test_an_unknown_goal_is_told_with_those_there_are(make_grid) -> None:
    with pytest.raises(AnalysisError) as caught:
        answers(make_grid({"d": [1.0]}), "fun")
    assert "production" in caught.value.remedy


@pytest.mark.slow
def test_frontiers_of_too_many_pairs_are_not_given_for_that_reason(make_grid) -> None:
    rng = np.random.default_rng(0)
    grid = {f"d{n}": rng.uniform(1e6, 2e6, 2).tolist() for n in range(72)}
    frame = make_grid(grid, accuracy=[60.0, 70.0])
    (found,) = answers(frame, "architecture search").values()
    assert (found["value"], found["reason"]) == (
        None,
        f"more than {MAX_LISTED_PAIRS} pairs of platforms",
    )
