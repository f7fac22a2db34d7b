"""What `fleetrank sweep plan` prints."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleetrank.foundation.wording import count_of
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import ExportRequest
from fleetrank.models.errors import ModelError
from fleetrank.models.networks.primer import canary_request, primer_request
from fleetrank.orchestrator.cli.output.listing import print_table
from fleetrank.orchestrator.identity.cells import SkippedCell
from fleetrank.orchestrator.plan.estimate import exporting_s, measuring_s
from fleetrank.orchestrator.progress.wording import duration
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_setup import Setup, primed_formats
from fleetrank.orchestrator.workspace.workspace import Workspace


def print_plan(workspace: Workspace, setup: Setup, *, as_json: bool) -> None:
    """Prints cells as a table, or the whole plan as a JSON list of cells."""
    plan = setup.plan
    requests = dict.fromkeys(cell.export for cell in plan.cells)
    cached = _cached(workspace, requests)
    places = setup.places
    rows: list[dict[str, object]] = [
        {
            "model": cell.export.card.name,
            "family": cell.export.card.family.value,
            "platform": cell.platform_key,
            "origin": places[cell.device].origin.value,
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
    for line in _skipped_lines(plan.skipped):
        print(line)
    cells, repeats = count_of(len(plan.cells), "cell"), count_of(plan.repeats, "repeat")
    print(f"\n{cells} x {repeats} = {count_of(plan.n_repeats, 'process', 'processes')}")
    print(f"files: {len(cached)} ready, {len(requests) - len(cached)} to build and verify")
    more = {primer_request(format_) for format_ in primed_formats(setup, plan.cells)}
    if setup.has_canaries:
        more.add(canary_request())
    more -= requests.keys()
    missing = [request for request in requests if request not in cached]
    missing += more - _cached(workspace, more)
    _print_estimate(setup, missing, ResultStore(workspace.results).history())


def _skipped_lines(skipped: Iterable[SkippedCell]) -> Iterator[str]:
    """One line for all models that a platform skips for the same reason."""
    models: dict[tuple[str, str], list[str]] = defaultdict(list)
    for cell in skipped:
        model, _, platform = cell.label.partition(" on ")
        models[platform, cell.reason].append(model)
    for (platform, reason), names in models.items():
        shown = names[0] if len(names) == 1 else count_of(len(names), "model")
        yield f"skipped: {shown} on {platform}: {reason}"


def _print_estimate(
    setup: Setup, missing: Sequence[ExportRequest], history: Mapping[str, float]
) -> None:
    """Both parts of the estimated time, and the basis of each."""
    if missing:
        took = duration(exporting_s(missing))
        print(
            f"exporting takes about {took} on 2 idle cores (assumes models as large as the "
            "built-in ones)"
        )
    plan = setup.plan
    seconds = measuring_s(plan, history, setup.places)
    if seconds is not None:
        n_known = sum(cell.cell_key in history for cell in plan.cells)
        known = count_of(n_known, "cell")
        print(
            f"measuring takes about {duration(seconds)} if no repeat fails: {known} estimated "
            f"from earlier runs, {len(plan.cells) - n_known} from the sweep's time limits (upper "
            "bound)"
        )


def _cached(workspace: Workspace, requests: Iterable[ExportRequest]) -> set[ExportRequest]:
    """The requests whose file is already cached."""
    cache = ArtifactCache(workspace.artifacts)
    found = set()
    for request in requests:
        try:
            if cache.peek(request) is not None:
                found.add(request)
        except ModelError:
            # An unreadable file is exported again; the sweep reports why that fails.
            continue
    return found
