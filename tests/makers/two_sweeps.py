"""Workspaces whose sweeps have every kind of file that a sweep can have."""

from pathlib import Path

from fleet_rows import NETS, PLACES, write_results

from fleetrank.orchestrator.store.exclusions import exclude
from fleetrank.orchestrator.store.journals.journal import Journal
from fleetrank.orchestrator.store.parquet.part_reader import read_rows
from fleetrank.orchestrator.store.results import ResultStore

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
    with store.open_journal(sweep) as journal:
        _fill(journal, store.parts_folder(sweep))
    logs = results / "raw" / sweep
    logs.mkdir(parents=True)
    (logs / "a-0-0.log.gz").write_bytes(b"log")
    store.progress_path(sweep).write_text("{}")
    exclude(results, sweep, "resnet*", "cold room")


def _fill(journal: Journal, folder: Path) -> None:
    for row in read_rows(folder):
        stamps = {name: str(value) for name, value in row.items() if name.endswith("_utc")}
        journal.append({**row, **stamps})
