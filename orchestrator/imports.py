"""Stores published measurements: each release is a separate sweep with its source."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from fleetrank.analysis.importers.model_facts import ModelFacts, fill, refuse_unknown_models
from fleetrank.analysis.importers.release import Release, drop_reason
from fleetrank.analysis.stored.columns import SCHEMA, SCHEMA_VERSION
from fleetrank.analysis.stored.side_tables import EVALUATIONS
from fleetrank.analysis.stored.sweep_record import IMPORTED, SweepRecord, SweepState
from fleetrank.models.cards.card import ModelCard
from fleetrank.models.cards.zoo import find_card
from fleetrank.orchestrator.identity import (
    CELL_KEY_DIGITS,
    SweepFacts,
    canonical_json,
    row_platform_key,
)
from fleetrank.orchestrator.rows import Row
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import side_lines
from fleetrank.orchestrator.workspace.workspace import new_sweep_id, sweep_facts, sweep_provenance

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
        earlier: stored sweeps of the same release with other content, such as other facts.
    """

    sweep_id: str
    release: Release
    is_new: bool
    n_rows: int
    dropped: Mapping[str, int]
    earlier: tuple[str, ...]


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
    earlier = _earlier(store, release, content)
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


def _earlier(store: ResultStore, release: Release, content: str) -> tuple[str, ...]:
    records = map(store.sweep_record, store.sweep_ids())
    mine = (release.source, release.version)
    return tuple(
        record.sweep_id
        for record in records
        if (record.source, record.release) == mine and record.content_sha256 != content
    )


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
