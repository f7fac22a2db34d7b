"""Resuming what was noisy, on simulated devices with and without noise."""

from collections import Counter
from dataclasses import replace

import pytest

from fleetrank.analysis.stored.cell_values import cell_values, dropped_attempts
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.orchestrator.errors import NothingToDoError
from fleetrank.orchestrator.sweep.sweep_run import resume_sweep, run_sweep
from fleetrank.orchestrator.sweep.sweep_session import RunOptions
from fleetrank.orchestrator.workspace.workspace import Workspace

_DEVICE = "name: {name}\nkind: simulated\noptions: {{noise: {noise}}}\n"


def test_repeats_of_noisy_cells_are_replaced_and_their_rows_stay(folder) -> None:
    for name, noise in (("quiet", 0.001), ("wild", 5), ("rough", 5)):
        text = _DEVICE.format(name=name, noise=noise)
        (folder.root / "devices" / f"{name}.yaml").write_text(text)
    folder.write_spec(["m0"], ["quiet", "wild", "rough"], repeats=3)
    workspace = Workspace.at(folder.root)
    run_sweep(workspace, workspace.sweeps / "t.yaml", RunOptions(is_inline=True))
    again = RunOptions(is_inline=True, repeats_noisy=True)
    for only, n_wild, n_rough in (("*wild*", 6, 3), ("*rough*", 6, 6), (None, 9, 9)):
        before = folder.rows()
        outcome = resume_sweep(workspace, None, replace(again, restricted_to=only))
        assert folder.rows()[: len(before)] == before
        counts = Counter(row["device"] for row in folder.rows())
        assert counts == {"quiet": 3, "wild": n_wild, "rough": n_rough}
        assert (outcome.n_ok, outcome.n_missing) == (9, 0)
    rows = load_measurements(workspace.results, origins=ORIGINS)
    assert set(cell_values(rows)["n_repeats"]) == {3}
    assert dropped_attempts(rows)["reason"].to_list() == ["retried"] * 12
    with pytest.raises(NothingToDoError, match="is noisy"):
        resume_sweep(workspace, None, replace(again, restricted_to="*quiet*"))
