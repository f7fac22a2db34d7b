"""What `fleetrank sweep plan` prints."""

from models.cache import ArtifactCache
from models.errors import ModelError
from models.types import ExportRequest
from orchestrator.cells import Plan
from orchestrator.cli.listing import print_table
from orchestrator.plan import estimate_s
from orchestrator.progress.wording import duration
from orchestrator.store.results import ResultStore
from orchestrator.sweep_setup import Setup, count_repeats
from orchestrator.workspace import Workspace


def print_plan(workspace: Workspace, setup: Setup, *, as_json: bool) -> None:
    """Cells as a table, or everything as a JSON list of cells."""
    plan = setup.plan
    cached = _cached(workspace, plan)
    rows: list[dict[str, object]] = [
        {
            "model": cell.export.card.name,
            "family": cell.export.card.family.value,
            "platform": cell.platform_key,
            "repeats": plan.repeats,
            "file": "ready" if cell.export in cached else "to build",
            "skipped": None,
        }
        for cell in plan.cells
    ]
    if as_json:
        skipped = [
            {**dict.fromkeys(rows[0]), "platform": cell.label, "skipped": cell.reason}
            for cell in plan.skipped
        ]
        print_table([*rows, *skipped], as_json=True)
        return
    print_table([{k: v for k, v in row.items() if k != "skipped"} for row in rows], as_json=False)
    for cell in plan.skipped:
        print(f"skipped: {cell.label}: {cell.reason}")
    requests = dict.fromkeys(cell.export for cell in plan.cells)
    print(f"\n{len(plan.cells)} cells x {plan.repeats} repeats = {count_repeats(plan)} processes")
    print(f"files: {len(cached)} ready, {len(requests) - len(cached)} to build and verify")
    seconds = estimate_s(plan, ResultStore(workspace.results).history())
    if seconds is not None:
        print(f"measuring takes at most about {duration(seconds)}, exports not counted")


def _cached(workspace: Workspace, plan: Plan) -> set[ExportRequest]:
    """The requests whose file is there already."""
    cache = ArtifactCache(workspace.artifacts)
    found = set()
    for request in dict.fromkeys(cell.export for cell in plan.cells):
        try:
            if cache.peek(request) is not None:
                found.add(request)
        except ModelError:
            # A file that cannot be read has to be exported, and the sweep says why it fails.
            continue
    return found
