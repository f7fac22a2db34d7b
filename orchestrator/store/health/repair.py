"""Makes a damaged part again from the journal, and a damaged journal from the parts.

Nothing damaged is deleted: it is renamed, so that readers pass over it and a person can look at it.
What has no whole copy stays as it is.
"""

from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.store.durable import replace_file_with, store_error, sync_folder
from orchestrator.store.health.differences import Side
from orchestrator.store.health.verify import Examined, examine
from orchestrator.store.journal import Journal
from orchestrator.store.journal_line import Entry, make_line
from orchestrator.store.part_reader import read_row_texts
from orchestrator.store.results import ResultStore
from orchestrator.store.row_index import KEY, Key

_SET_ASIDE = ".damaged"


def repair_sweep(store: ResultStore, sweep_id: str) -> list[str]:
    """Repairs what one side of journal and parts has whole; the caller holds the sweep's lease.

    Returns:
        What was done, a sentence each; empty when nothing could be.

    Raises:
        StoreError: the disk is full, or a file cannot be renamed; nothing is lost.
    """
    found = examine(store, sweep_id)
    done = repair_parts(store, sweep_id, found)
    if found.n_only_in_parts == 0 or not found.parts.damaged:
        done += _repair_journal(store, sweep_id, found)
    return done


def repair_parts(store: ResultStore, sweep_id: str, found: Examined) -> list[str]:
    """Makes parts that are damaged, or hold what the journal contradicts, again.

    Only while the journal has every row of the other parts and no damaged line: a journal that
    has lost rows could have lost those of the damaged part too.
    """
    wrong = {one.part for one in found.differing if one.wrong is Side.PARTS}
    bad = sorted({*found.parts.damaged, *wrong})
    if not bad or found.n_only_in_parts or found.journal.problems or found.journal.damaged:
        return []
    kept = [_set_aside(path) for path in bad]
    store.publish(sweep_id)
    return [f"{path.name} is made again from the journal; {kept} is the damaged one"
            for path, kept in zip(bad, kept, strict=True)]


def _repair_journal(store: ResultStore, sweep_id: str, found: Examined) -> list[str]:
    journal = store.open_journal(sweep_id)
    wrong = {one.key for one in found.differing if one.wrong is Side.JOURNAL}
    if not (found.journal.problems or found.journal.damaged or found.n_only_in_parts or wrong):
        return []
