"""Planted data: an order that holds between groups of models but not inside them."""

import numpy as np
import polars as pl
import pytest

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.transfer import transfer, transfer_as_table
from fleetrank.analysis.statistics.transfer.transfer_within import Inside, is_below
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow

FAMILIES = ("standard_cnn", "mobile_cnn", "efficient_cnn", "transformer", "hybrid")


def rows_of(logs: np.ndarray, families: list[str | None], flops: list[int | None]):
    """Log latencies (n_models, n_devices) as rows."""
    return [
        {"model": f"m{i:02}", "device": f"d{j}", "tier": "edge" if j else "cpu",
         "family": families[i], "flops": flops[i], "peak_memory_bytes": 1000 + i,
         "latency_p50_ns": float(1e6 * np.exp(log))}
        for i, row in enumerate(logs) for j, log in enumerate(row)
    ]  # fmt: skip


def planted(*, is_alike_ordered: bool) -> tuple[np.ndarray, list[str | None], list[int | None]]:
    """Thirty models in five families, six steps apart; inside, one order or none."""
    rng = np.random.default_rng(1)
    member = np.repeat(np.arange(5), 6)
    own = rng.normal(size=(30, 1)) if is_alike_ordered else rng.normal(size=(30, 3))
    logs = 3.0 * member[:, None] + own + 0.05 * rng.normal(size=(30, 3))
    flops = [int(1e6 * 4.0**family * (1 + 0.01 * i)) for i, family in enumerate(member.tolist())]
    return logs, [FAMILIES[family] for family in member], flops  # type: ignore[return-value]


def within_of(frame: pl.LazyFrame) -> dict[tuple[str, str], object]:
    found = transfer(Session(frame, Selection()))
    return {(one.measure, one.target): one for one in found.within if one.source == "cpu"}


def test_an_order_between_families_only_is_not_one_inside_them(make_attempts) -> None:
    frame = make_attempts(rows_of(*planted(is_alike_ordered=False)))
    one = within_of(frame)[Inside.FAMILIES.measure, "edge"]
    rows = make_table("transfer", frame, Selection()).frame.filter(
        pl.col("level") == "tier", pl.col("source") == "cpu"
    )
    pooled = rows.filter(pl.col("measure") == "latency")["rho"][0]
    assert pooled > 0.85
    assert one.low < 0 < one.high
    assert abs(one.rho) < 0.35
    assert is_below(one)
    assert one.gap.gap_low < pooled - one.rho < one.gap.gap_high
    shown = rows.filter(pl.col("measure") == "latency in families")
    assert shown["rho"][0] == one.rho
    assert (shown["gap_low"][0], shown["n_models"][0]) == (one.gap.gap_low, 30)


@pytest.mark.thorough
def test_a_note_warns_of_it_and_not_of_an_order_that_holds_inside_too(make_attempts) -> None:
    for is_alike_ordered in (False, True):
        frame = make_attempts(rows_of(*planted(is_alike_ordered=is_alike_ordered)))
        found = transfer(Session(frame, Selection()))
        noted = ["one family" in note for note in transfer_as_table(found).notes]
        assert any(noted) is not is_alike_ordered
        inside = [one for one in found.within if one.measure == Inside.FAMILIES.measure]
        assert min(one.rho for one in inside if one.rho is not None) > 0.9 or not is_alike_ordered


def test_without_families_or_flops_the_rows_say_why(make_attempts) -> None:
    logs, _, _ = planted(is_alike_ordered=True)
    frame = make_attempts(rows_of(logs, [None] * 30, [None] * 30))
    for one in within_of(frame).values():
        assert (one.rho, one.low, one.n_models) == (None, None, 0)
        assert one.reason.startswith("0 models")


def test_the_gap_is_to_rho_of_the_models_with_a_family(make_attempts) -> None:
    """Models without a family would raise rho over all models, and so the gap."""
    rng = np.random.default_rng(2)
    alike = rng.normal(size=(12, 1)) + 0.3 * rng.normal(size=(12, 3))
    distant = 20.0 + 3.0 * np.arange(40.0)[:, None] + np.zeros(3)
    families = [FAMILIES[i % 2] for i in range(12)] + [None] * 40
    frame = make_attempts(rows_of(np.vstack([alike, distant]), families, [None] * 52))
    one = within_of(frame)[Inside.FAMILIES.measure, "edge"]
    assert one.n_models == 12
    assert not is_below(one)


def test_few_models_have_no_interval(make_attempts) -> None:
    logs, families, flops = planted(is_alike_ordered=True)
    frame = make_attempts(rows_of(logs[:8], families[:8], flops[:8]))
    one = within_of(frame)[Inside.FAMILIES.measure, "edge"]
    assert one.rho is not None
    assert (one.low, one.gap, is_below(one)) == (None, None, False)
    assert one.reason.startswith("no interval: 8 models")
