"""Stores what the MACs of profiled models consist of, in the side table `module_macs`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fleetrank.analysis.stored.side.module_macs import MODULE_MACS
from fleetrank.analysis.stored.side.side_table import read_side
from fleetrank.models.cards.card import Artifact, ExportRequest
from fleetrank.orchestrator.identity.cells import Cell
from fleetrank.orchestrator.store.side_records import append_side


def store_module_macs(
    results: Path,
    sweep_id: str,
    cells: Iterable[Cell],
    artifacts: Mapping[ExportRequest, Artifact],
) -> None:
    """Stores them once for each model and workload; an artifact may not know them.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
        DamagedPartError: a stored file of the sweep is damaged.
    """
    found = read_side(results, MODULE_MACS, sweeps=(sweep_id,))
    known = set(found.select("model", "workload").unique().iter_rows())
    rows: list[Mapping[str, object]] = []
    for cell in cells:
        place = (cell.export.card.name, str(cell.execution.workload))
        artifact = artifacts.get(cell.export)
        if artifact is None or place in known or not artifact.cost.by_module:
            continue
        known.add(place)
        rows += _rows(place, artifact)
    if rows:
        append_side(results, MODULE_MACS, rows, sweep_id=sweep_id)


def _rows(place: tuple[str, str], artifact: Artifact) -> Iterator[Mapping[str, object]]:
    for module, operation, macs in artifact.cost.by_module:
        yield {
            "model": place[0],
            "workload": place[1],
            "module": module,
            "source_operator": operation,
            "macs": macs,
        }
