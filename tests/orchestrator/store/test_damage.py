"""Seeded damages of a small workspace: none is read as another value, and no row is lost by it.

`FLEETRANK_DAMAGES=1000 pytest tests/orchestrator/store/test_damage.py -m thorough -s` runs more.
"""

import os

import pytest
from damage import BAD, BETWEEN, campaign, make_bench, table

pytestmark = pytest.mark.slow

N_DAMAGES = int(os.environ.get("FLEETRANK_DAMAGES", "300"))


@pytest.mark.parametrize("n", [15, pytest.param(N_DAMAGES, marks=pytest.mark.thorough)])
def test_no_damage_is_silent_and_no_row_is_lost_or_doubled(tmp_path, n) -> None:
    counts = campaign(make_bench(tmp_path), n)
    print(f"\n{table(counts)}")
    assert counts.total() == n
    assert sum(many for (where, _, _), many in counts.items() if where == BETWEEN) == n / 3
    assert {key: many for key, many in counts.items() if key[2] in BAD} == {}
