"""Workspaces whose sweeps have every kind of file that a sweep can have."""

import shutil
from pathlib import Path

from fleet_rows import NETS, PLACES, write_results

from fleetrank.analysis.stored.part_list import list_path
from fleetrank.orchestrator.store.parts import frames_of, journal_rows
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import exclude

KEPT, GOES = "kept-20261120T080000-aa11", "goes-20261121T080000-bb22"


def make_workspace(root: Path, *sweeps: str) -> Path:
    root.mkdir()
    (root / "cluster.yaml").touch()
    for number, sweep in enumerate(sweeps):
        add_sweep(root, sweep, seed=number)
    return root


def add_sweep(root: Path, sweep: str, *, seed: int) -> None:
    results = root / "results"
    write_results(
        results, nets=NETS[:2], places=PLACES[:1], repeats=2, n_samples=2, sweep=sweep, seed=seed
    )
    store = ResultStore(results)
    rows = [row for frame in frames_of(results, sweep) for row in journal_rows(frame)]
    shutil.rmtree(results / "measurements" / f"sweep_id={sweep}")
    list_path(results, sweep).unlink()
    with store.open_journal(sweep) as journal:
        for row in rows:
            journal.append(row)
    store.publish(sweep)
    logs = results / "raw" / sweep
    logs.mkdir(parents=True)
    (logs / "a-0-0.log.gz").write_bytes(b"log")
    store.progress_path(sweep).write_text("{}")
    exclude(results, sweep, "resnet*", "cold room")
