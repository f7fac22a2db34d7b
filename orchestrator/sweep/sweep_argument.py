"""The sweep that a command names: a file of its specification, or a stored sweep."""

from contextlib import suppress
from pathlib import Path

from fleetrank.foundation.wording import did_you_mean, nearest
from fleetrank.orchestrator.errors import OrchestratorError, UsageError
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.workspace.provenance import sweep_name
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec, load_spec
from fleetrank.orchestrator.workspace.workspace import Workspace


def read_spec(workspace: Workspace, path: Path) -> tuple[SweepSpec, Path]:
    """Reads a specification by path, or by its name in the workspace's `sweeps/`.

    Raises:
        UsageError: as `load_spec`; if the file is missing, the remedy names the nearest one.
    """
    is_bare = path.parent == Path()
    inside = workspace.sweeps / f"{path.name.removesuffix('.yaml')}.yaml"
    found = inside if not path.exists() and is_bare and inside.exists() else path
    if not found.exists():
        folder = workspace.sweeps if is_bare else path.parent
        known = {spec.stem: spec for spec in sorted(folder.glob("*.yaml"))}
        if guess := nearest(path.name.removesuffix(".yaml"), known):
            shown = Path(workspace.sweeps.name) if is_bare else folder
            raise UsageError(
                f"file not found: {path}", f"did you mean {shown / known[guess].name}?"
            )
    return load_spec(found), found.resolve()


def find_sweep(workspace: Workspace, store: ResultStore, given: str | None) -> str:
    """The id of the stored sweep that a command's argument means.

    Args:
        workspace: with the files of sweeps.
        store: with the stored sweeps.
        given: an id, or what `read_spec` takes, which means the newest sweep of that file or name;
            `None` means the newest of all.

    Raises:
        UsageError: there is none, or file and name mean different sweeps; the remedy names ids.
        NothingToDoError: nothing is stored.
    """
    known = store.sweep_ids()
    if given is None or given in known:
        return given or store.newest_sweep()
    path = Path(given)
    wanted = {path.name.removesuffix(".yaml")}
    # A sweep outlives its file, and a change that makes the file invalid.
    with suppress(OrchestratorError):
        wanted.add(read_spec(workspace, path)[0].name)
    newest = {sweep_name(sweep_id): sweep_id for sweep_id in known}
    found = [sweep_id for name, sweep_id in newest.items() if name in wanted]
    if len(found) > 1:
        raise UsageError(
            f"'{given}' means {len(found)} sweeps: one by its name, one by the name in its file",
            f"give the id: {' or '.join(found)}",
        )
    if not found:
        raise UsageError(
            f"sweep '{given}' does not exist",
            did_you_mean(path.name, [*known, *newest], "`fleetrank results list` lists them"),
        )
    return found[0]
