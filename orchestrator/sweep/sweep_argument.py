"""The sweep that a command names: a file of its specification, or a stored sweep."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fleetrank.analysis.stored.part_list import TAG_WORD
from fleetrank.analysis.stored.sweep_tags import tagged_sweeps
from fleetrank.foundation.wording import did_you_mean, nearest
from fleetrank.orchestrator.errors import OrchestratorError, UsageError
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.workspace.provenance import sweep_name
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec, load_spec
from fleetrank.orchestrator.workspace.workspace import Workspace

LATEST, PREVIOUS = "latest", "previous"
"""Words that mean a sweep; a sweep file with such a name is given by its path."""


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


def find_sweep(
    workspace: Workspace, store: ResultStore, given: str | None, *, before: str | None = None
) -> str:
    """The id of the stored sweep that a command's argument means.

    Args:
        workspace: with the files of sweeps.
        store: with the stored sweeps.
        given: an id; `latest` or `None`, the newest of all; `previous`; `tag:NAME`, the newest with
            this tag; or what `read_spec` takes, which means the newest sweep of that file or name.
        before: the sweep before which `previous` is the newest of the same name; `None` means
            before the newest of all.

    Raises:
        UsageError: there is none, or file and name mean different sweeps; the remedy names ids.
        NoDataError: no sweep with measurements has the tag; the remedy lists the tags.
        NothingToDoError: nothing is stored.
    """
    known = store.sweep_ids()
    if given in known:
        return str(given)
    if given in {None, LATEST}:
        return store.newest_sweep()
    if given == PREVIOUS:
        return _sweep_before(before or store.newest_sweep(), known)
    if given.startswith(TAG_WORD):
        return max(tagged_sweeps(store.root, [given]), key=known.index)
    return _newest_named(workspace, given, known)


def _sweep_before(sweep_id: str, known: Sequence[str]) -> str:
    name = sweep_name(sweep_id)
    older = [one for one in known[: known.index(sweep_id)] if sweep_name(one) == name]
    if not older:
        raise UsageError(
            f"no sweep of the name {name} is older than {sweep_id}",
            "`fleetrank results list` lists the sweeps: give an id, a name or tag:NAME",
        )
    return older[-1]


def _newest_named(workspace: Workspace, given: str, known: Sequence[str]) -> str:
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
