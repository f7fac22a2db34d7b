import numpy as np
import pytest

from fleetrank.analysis.statistics.audit.unit_slips import (
    mib_slips,
    model_slips,
    platform_slips,
    unit_slips,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow

MODELS = 12
FLOPS = np.geomspace(1e8, 2e10, MODELS)
FACTORS = [(1e3, 3), (1e-3, -3), (1e6, 6), (1e-6, -6)]
SEEDS = range(5)


def _fleet(seed: int, n_platforms: int = 8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    levels = rng.normal(0, 1, n_platforms)
    logs: np.ndarray = np.log(FLOPS)[:, None] + rng.normal(0, 0.2, (MODELS, n_platforms)) + levels
    return logs


TIERS = np.repeat([0, 1], 4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("factor", "power"), FACTORS)
def test_a_whole_platform_in_another_unit_is_found_alone(
    seed: int, factor: float, power: int
) -> None:
    logs = _fleet(seed)
    assert not platform_slips(logs, TIERS)[0].any()
    logs[:, 2] += np.log(factor)
    powers, _ = platform_slips(logs, TIERS)
    assert powers.tolist() == [power if column == 2 else 0 for column in range(8)]


@pytest.mark.parametrize(("factor", "power"), FACTORS)
def test_three_platforms_are_enough_to_find_the_wrong_one(factor: float, power: int) -> None:
    logs = _fleet(0, 3)
    logs[:, 1] += np.log(factor)
    assert platform_slips(logs, np.zeros(3, dtype=np.int64))[0].tolist() == [0, power, 0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flops", [FLOPS, np.full(MODELS, np.nan)], ids=["flops", "none"])
@pytest.mark.parametrize(("factor", "power"), FACTORS)
def test_a_model_in_another_unit_on_all_platforms_is_found_alone(
    seed: int, flops: np.ndarray, factor: float, power: int
) -> None:
    logs = _fleet(seed)
    assert not model_slips(logs, flops, TIERS)[0].any()
    logs[5] += np.log(factor)
    powers, _ = model_slips(logs, flops, TIERS)
    assert powers.tolist() == [power if row == 5 else 0 for row in range(MODELS)]
    assert not platform_slips(logs, TIERS)[0].any()
    assert not unit_slips(np.zeros(3)).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_megabytes_read_as_mebibytes_are_found_where_memory_is_equal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    memory = np.log(FLOPS)[:, None] + rng.normal(0, 0.01, (MODELS, 4))
    assert np.isnan(mib_slips(memory)).all()
    memory[:, 1] += np.log(1.048576)
    found = mib_slips(memory)
    assert np.flatnonzero(np.isfinite(found)).tolist() == [1]
    assert np.exp(found[1]) == pytest.approx(1.048576, rel=0.012)
    assert np.isnan(mib_slips(memory + rng.normal(0, 0.3, memory.shape))).all()


def _kinds(frame) -> list[tuple[object, object, object]]:
    rows = make_table("trust/findings", frame, Selection()).frame.to_dicts()
    return [(row["what"], row["platform_key"], row["model"]) for row in rows]


@pytest.mark.parametrize("factor", [1000, 1024])
def test_memory_of_a_platform_or_a_row_in_another_unit_is_found(make_attempts, factor: int) -> None:
    rng = np.random.default_rng(1)
    rows = [
        {"model": f"m{i}", "device": f"d{n}", "latency_p50_ns": 1e6 * (i + 1) ** (0.6 + n / 5),
         "peak_memory_bytes": int(1e7 * (i + 1) * rng.uniform(0.9, 1.1))}
        for i in range(MODELS)
        for n in range(4)
    ]  # fmt: skip
    assert _kinds(make_attempts(rows)) == []
    slipped = [
        row | {"peak_memory_bytes": row["peak_memory_bytes"] * factor}
        if row["device"] == "d1" or (row["device"], row["model"]) == ("d2", "m4")
        else row
        for row in rows
    ]
    assert _kinds(make_attempts(slipped)) == [
        ("memory in another unit", "d1/onnx/b1/t1", None),
        ("memory in another unit", "d2/onnx/b1/t1", "m4"),
    ]
