"""`fleetrank results import`: stores published measurements, and those of another workspace.

Each release becomes a separate sweep with its source.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.analysis.importers.importer import IMPORTERS, read_releases
from fleetrank.analysis.importers.model_facts import (
    ModelFacts,
    fill,
    read_facts,
    refuse_unknown_models,
)
from fleetrank.analysis.importers.release import Release, drop_reason
from fleetrank.analysis.stored.columns import SCHEMA, SCHEMA_VERSION
from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.sweep_record import IMPORTED, SweepRecord, SweepState
from fleetrank.foundation.reading_beside import pause_between_steps
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import visible_line
from fleetrank.foundation.wording import count_of
from fleetrank.models.cards.card import ModelCard
from fleetrank.models.cards.zoo import find_card, load_cards
from fleetrank.orchestrator.cli.context import Now, current, host_turn, settle_workspace
from fleetrank.orchestrator.cli.listing import AsJson, print_table
from fleetrank.orchestrator.cli.reading_turn import Work, turn_for
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.housekeeping import Step, copy_sweep, plan_merge
from fleetrank.orchestrator.identity import SweepFacts
from fleetrank.orchestrator.keys import CELL_KEY_DIGITS, canonical_json, row_platform_key
from fleetrank.orchestrator.rows import Row
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import copy_side_rows, side_lines
from fleetrank.orchestrator.workspace.provenance import new_sweep_id, sweep_facts, sweep_provenance
from fleetrank.orchestrator.workspace.workspace import Workspace

_ACCURACY_NOTE = {
    True: "Accuracy is the source's own for every model.",
    False: "The source has no accuracy; models declared equal to a card have the card's.",
}
"""By whether the release publishes accuracies: one rule for all of its rows."""
_BY_EQUIVALENCE = ("macs", "flops", "flops_method", "flops_source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The outcome of importing one release.

    Attributes:
        is_new: whether rows were added; the same content is stored only once.
        dropped: number of rows that no figure uses, by reason.
        earlier: stored sweeps of files of this release, such as with other facts.
        beside: stored sweeps of other files of the same release; such as of other devices.
    """

    sweep_id: str
    release: Release
    is_new: bool
    n_rows: int
    dropped: Mapping[str, int]
    earlier: tuple[str, ...]
    beside: tuple[str, ...]


def refuse_unknown_facts(
    releases: Iterable[Release], cards: Mapping[str, ModelCard], facts: ModelFacts
) -> None:
    """Compares a file of facts with all releases, before one of them is stored.

    Raises:
        AnalysisError: a line names no model of them.
        CardError: as `import_release`.
    """
    every = (
        (release.source, str(row["model"]))
        for release in releases
        for row in _rows_with_cards(release, cards)
    )
    refuse_unknown_models(facts, every)


def import_release(
    store: ResultStore,
    release: Release,
    cards: Mapping[str, ModelCard],
    folder: Path,
    facts: ModelFacts | None = None,
) -> Imported:
    """Stores one release unless it is already stored; completes an import that a crash interrupted.

    Args:
        store: of the workspace.
        release: of one source.
        cards: the models of the workspace.
        folder: the workspace; it is needed for the provenance.
        facts: fill what neither the release nor a card states.

    Raises:
        StoreError: the disk is full; run the import again.
        CardError: a mapping names a card that does not exist.
    """
    rows: Sequence[Row] = _rows_with_cards(release, cards)
    if facts is not None:
        rows, notes = fill(facts, release.source, rows)
        release = replace(release, notes=(*release.notes, *notes))
    dropped = Counter(reason for row in rows if (reason := drop_reason(row)) is not None)
    whole = canonical_json([rows, release.aliases, release.evaluations])
    content = hashlib.sha256(whole.encode()).hexdigest()
    earlier, beside = _others(store, release, content)
    sweep_id, state = _stored(store, content)
    if sweep_id is None:
        sweep_id = new_sweep_id(f"import-{release.source}-{release.version}", store.sweep_ids())
        store.create_sweep(_record(sweep_id, release, rows, content, dropped, folder))
    if state is not SweepState.FINISHED:
        _write(store, sweep_id, rows, release.evaluations, folder)
    return Imported(
        sweep_id=sweep_id,
        release=release,
        is_new=state is not SweepState.FINISHED,
        n_rows=len(rows),
        dropped=dict(dropped),
        earlier=earlier,
        beside=beside,
    )


def _rows_with_cards(release: Release, cards: Mapping[str, ModelCard]) -> list[Row]:
    for name in {str(row["model"]) for row in release.rows}:
        if not name.startswith(f"{release.source}:"):
            find_card(cards, name)
    has_accuracy = _has_accuracy(release)
    return [_with_card(row, cards, has_accuracy=has_accuracy) for row in release.rows]


def _has_accuracy(release: Release) -> bool:
    return any(row.get("accuracy_top1") is not None for row in release.rows)


def _stored(store: ResultStore, content: str) -> tuple[str | None, SweepState | None]:
    """Returns the sweep that has this content, and its state."""
    for sweep_id in store.sweep_ids():
        record = store.sweep_record(sweep_id)
        if record.content_sha256 == content:
            return sweep_id, record.state
    return None, None


def _others(
    store: ResultStore, release: Release, content: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Stored sweeps of the release with other content: those that share a file, and the others."""
    sweeps: dict[bool, list[str]] = {True: [], False: []}
    files = _contents(str(row["source_ref"]) for row in release.rows)
    for record in map(store.sweep_record, store.sweep_ids()):
        is_same = (record.source, record.release) == (release.source, release.version)
        if is_same and record.content_sha256 != content:
            sweeps[not files.isdisjoint(_contents(record.files))].append(record.sweep_id)
    return tuple(sweeps[True]), tuple(sweeps[False])


def _contents(references: Iterable[str]) -> set[str]:
    """The hashes of files, without their names and without those of mappings."""
    return {one.partition("; ")[0].rpartition(" ")[2] for one in references}


def _record(
    sweep_id: str,
    release: Release,
    rows: Sequence[Row],
    content: str,
    dropped: Mapping[str, int],
    folder: Path,
) -> SweepRecord:
    return SweepRecord(
        sweep_id=sweep_id,
        state=SweepState.IMPORTING,
        origin=IMPORTED,
        source=release.source,
        release=release.version,
        licence=release.licence,
        content_sha256=content,
        files=sorted({str(row["source_ref"]) for row in rows}),
        n_rows=len(rows),
        dropped=dict(dropped),
        aliases=dict(release.aliases),
        notes=[*release.notes, _ACCURACY_NOTE[_has_accuracy(release)]],
        started_utc=datetime.now(UTC).isoformat(),
        **dict(sweep_provenance(folder)),
    )


def _write(
    store: ResultStore,
    sweep_id: str,
    rows: Iterable[Row],
    evaluations: Sequence[Row],
    folder: Path,
) -> None:
    facts = sweep_facts(sweep_id, 0, folder)
    n_of: Counter[object] = Counter()
    with store.lease(sweep_id):
        with store.open_journal(sweep_id) as journal:
            n_there = sum(1 for _ in journal.rows())
            for number, row in enumerate(_keyed(rows, facts)):
                n_of[row["status"]] += 1
                if number >= n_there:
                    journal.append(row)
            n_there = sum(1 for _ in journal.rows(EVALUATIONS.name))
            if left := evaluations[n_there:]:
                journal.append_lines(side_lines(EVALUATIONS, left, sweep_id))
        store.publish(sweep_id)
        journal.pack()
        changes = {
            "state": SweepState.FINISHED,
            "finished_utc": datetime.now(UTC).isoformat(),
            "n_ok": n_of["ok"],
            "n_failed": n_of["failed"],
            "n_left": 0,
        }
        store.update_record(sweep_id, changes)


def _keyed(rows: Iterable[Row], facts: SweepFacts) -> Iterable[Row]:
    """Adds keys and times; a second row of the same model and platform is a second repeat."""
    repeats: Counter[str] = Counter()
    now = datetime.now(UTC).isoformat()
    for row in rows:
        platform = row_platform_key(row)
        of_text = [row["workload"]] if row.get("workload") else []
        text = canonical_json([row["model"], row.get("input_size"), platform, *of_text])
        cell = hashlib.sha256(text.encode()).hexdigest()[:CELL_KEY_DIGITS]
        yield (
            dict.fromkeys(SCHEMA)
            | row
            | {
                "sweep_id": facts.sweep_id,
                "cell_key": cell,
                "platform_key": platform,
                "repeat": repeats[cell],
                "attempt": 0,
                "schema_version": SCHEMA_VERSION,
                "fleetrank_version": facts.fleetrank_version,
                "git_commit": facts.git_commit,
                "origin": "imported",
                "flags": [],
                # The source has no time stamps, so the time of the import decides which is newest.
                "started_utc": now,
                "finished_utc": now,
            }
        )
        repeats[cell] += 1


def _with_card(row: Row, cards: Mapping[str, ModelCard], *, has_accuracy: bool) -> Row:
    """Adds facts of our card to a model declared equal to it.

    A release that publishes accuracies keeps its own for every model: other weights and another
    test would stand beside them in one frontier. Otherwise the card's accuracy is added.
    """
    card = cards.get(str(row["model"]))
    if card is None:
        return row
    size = row.get("input_size")
    if size is not None and size != card.input_size:
        # The source's model has another input size, so it is not the declared model any more.
        apart: Row = {"model": f"{row['source']}:{row['model']}@{size}"}
        return row | apart | dict.fromkeys(_BY_EQUIVALENCE)
    facts: Row = {"family": card.family.value, "has_attention": card.has_attention}
    if row.get("input_size") is None:
        facts["input_size"] = card.input_size
    if card.accuracy_top1 is not None and not has_accuracy:
        facts["accuracy_top1"] = card.accuracy_top1
        facts["accuracy_source"] = f"{card.accuracy_source}, by equivalence"
    return row | facts


_WORKSPACE = "workspace"
"""The source of `--from` whose path is another workspace."""


def import_results(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="A checkout of the source, its data folder, a CSV file, or another workspace; "
            "without for the source demo, which is part of fleetrank."
        ),
    ] = None,
    *,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar=f"<{'|'.join((*IMPORTERS, _WORKSPACE))}>",
            help="Source of the data.",
        ),
    ],
    mapping: Annotated[
        Path | None, typer.Option("--map", help="For csv: TOML file that maps columns.")
    ] = None,
    facts_file: Annotated[
        Path | None,
        typer.Option(
            "--facts",
            help="CSV file of what the source lacks: model, flops, params, accuracy, family.",
        ),
    ] = None,
    now: Now = False,
    as_json: AsJson = False,
) -> None:
    """Import published results, or another workspace.

    Each sweep is stored once. Of a workspace only results are copied: no device files, model cards
    and exported files.
    """
    workspace = settle_workspace() if path is None else current().workspace
    if source == _WORKSPACE:
        if path is None:
            raise UsageError("another workspace needs its path", "name its folder")
        if mapping is not None or facts_file is not None:
            raise UsageError("--map and --facts are for published measurements", "leave them out")
        _copy_sweeps(ResultStore(workspace.results), Workspace.at(path), as_json=as_json)
        return
    facts = None if facts_file is None else read_facts(facts_file)
    releases = read_releases(source, path, mapping)
    store, cards = ResultStore(workspace.results), load_cards(workspace.cards)
    named = {str(row["model"]) for release in releases for row in release.rows}
    cards.check(sorted(named))
    if facts is not None:
        refuse_unknown_facts(releases, cards.good, facts)
    done: list[Imported] = []
    with turn_for((), work=Work.EVERY_TABLE, now=now):
        for release in releases:
            pause_between_steps(f"imports {release.source} {release.version}")
            done.append(import_release(store, release, cards.good, workspace.root, facts))
    if as_json:
        print(json_text([_as_json(one) for one in done], indent=2))
        return
    for line in (line for one in done for line in _lines(one)):
        print(visible_line(line))


def _copy_sweeps(store: ResultStore, workspace: Workspace, *, as_json: bool) -> None:
    """Copies the sweeps and the rows without a sweep of another workspace, all or none.

    Raises:
        UsageError: one differs from a sweep of the same name, or is running.
    """
    other = ResultStore(workspace.results)
    with host_turn("results import"):
        plan = plan_merge(store, other)
    if refused := [one for one in plan if one.step is Step.REFUSE]:
        raise UsageError(
            "; ".join(f"{one.sweep_id}: {one.reason}" for one in refused),
            "wait for a running sweep to end; if two sweeps differ, delete one: "
            "`fleetrank results delete SWEEP`",
        )
    for one in plan:
        if one.step is Step.COPY:
            pause_between_steps(f"copies {one.sweep_id}")
            with host_turn("results import"):
                copy_sweep(store, other, one.sweep_id)
    with host_turn("results import"):
        n_rows = copy_side_rows(store.root, other.root)
    print_table([asdict(one) for one in plan], as_json)
    if n_rows and not as_json:
        print(f"{count_of(n_rows, 'row without a sweep', 'rows without a sweep')} copied")


def _as_json(one: Imported) -> dict[str, object]:
    release = {
        "source": one.release.source,
        "release": one.release.version,
        "licence": one.release.licence,
        "aliases": dict(one.release.aliases),
        "notes": one.release.notes,
    }
    return asdict(replace(one, release=replace(one.release, rows=()))) | release


def _lines(one: Imported) -> list[str]:
    if not one.is_new:
        return [f"{one.sweep_id}: nothing new, {count_of(one.n_rows, 'row')} already stored"]
    used = one.n_rows - sum(one.dropped.values())
    lines = [
        f"{one.sweep_id}: {count_of(one.n_rows, 'row')}, {used} usable ({one.release.licence})"
    ]
    lines += [f"  dropped: {count} x {reason}" for reason, count in sorted(one.dropped.items())]
    lines += [f"  alias: {name} is {kept}" for name, kept in one.release.aliases]
    lines += [f"  note: {note}" for note in one.release.notes]
    lines += [
        f"  the same release is also stored as {name}, with other content; the newer import "
        f"counts. Remove the older: fleetrank results delete {name}"
        for name in one.earlier
    ]
    lines += [
        f"  other files of the same release are stored as {name}: both count, and where both have "
        "a model on a platform, the newer import"
        for name in one.beside
    ]
    if one.dropped:
        lines.append(
            f"  list them: fleetrank report show trust --part dropped --sweep {one.sweep_id}"
        )
    return lines
