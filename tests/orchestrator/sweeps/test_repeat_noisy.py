"""Resuming what was noisy, on simulated devices with and without noise."""

from collections import Counter

import pytest

from fleetrank.orchestrator.errors import NothingToDoError
from fleetrank.orchestrator.sweep.sweep_run import resume_sweep, run_sweep
from fleetrank.orchestrator.sweep.sweep_session import RunOptions
from fleetrank.orchestrator.workspace.workspace import Workspace

_DEVICE = "name: {name}\nkind: simulated\noptions: {{noise: {noise}}}\n"


def test_only_noisy_cells_get_as_many_further_repeats(folder) -> None:
    for name, noise in (("quiet", 0.001), ("wild", 0.5)):
        text = _DEVICE.format(name=name, noise=noise)
        (folder.root / "devices" / f"{name}.yaml").write_text(text)
    folder.write_spec(["m0"], ["quiet", "wild"], repeats=3)
    workspace = Workspace.at(folder.root)
    run_sweep(workspace, workspace.sweeps / "t.yaml", RunOptions(is_inline=True))
    again = RunOptions(is_inline=True, repeats_noisy=True)
    for n_wild in (6, 9):
        outcome = resume_sweep(workspace, None, again)
        assert Counter(row["device"] for row in folder.rows()) == {"quiet": 3, "wild": n_wild}
        assert (outcome.n_ok, outcome.n_missing) == (3 + n_wild, 0)
    only = RunOptions(is_inline=True, repeats_noisy=True, restricted_to="*quiet*")
    with pytest.raises(NothingToDoError, match="is noisy"):
        resume_sweep(workspace, None, only)
