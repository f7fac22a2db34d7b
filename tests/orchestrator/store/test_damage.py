"""Seeded damages over every file of a small workspace: none is read as another value.

`FLEETRANK_DAMAGES=1000 pytest tests/orchestrator/store/test_damage.py -s` runs more of them.
"""

import os

import pytest
from damage import CRASHED, SILENT, campaign, make_workspace, table

pytestmark = pytest.mark.slow

N_DAMAGES = int(os.environ.get("FLEETRANK_DAMAGES", "135"))


def test_no_damage_is_silent(tmp_path) -> None:
    counts = campaign(make_workspace(tmp_path / "ws"), N_DAMAGES)
    print(f"\n{table(counts)}")
    assert counts.total() == N_DAMAGES
    bad = {key: n for key, n in counts.items() if key[2] in (SILENT, CRASHED)}
    assert bad == {}
