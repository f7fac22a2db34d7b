"""`results export --standard-metrics`: the summary of each run as JSON and as a page."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from fleetrank.foundation.strict_json import json_text
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.errors import ModelError
from fleetrank.models.networks.language_cost import embedding_count, parameter_count
from fleetrank.orchestrator.cli.context import readable_workspace
from fleetrank.orchestrator.cli.listing import write_data
from fleetrank.orchestrator.cli.reading_turn import Work, reading_turn
from fleetrank.orchestrator.cli.report_command import in_options
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.selectors import origins_of
from fleetrank.orchestrator.workspace.workspace import Workspace

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table

_HASH_DIGITS = 8
_COMPARISON = "summary.md"
_OF_RUN = ("model", "platform", "card_sha256", "weights_id")


def export_standard_metrics(
    sweeps: Sequence[str], out: Path | None, *, include_simulated: bool, now: bool
) -> None:
    """Prints the records of these sweeps as a JSON list, or writes two files for each.

    Args:
        sweeps: results of other sweeps do not count.
        out: a folder for `MODEL-HASH.json`, `MODEL-HASH.md` and the comparison `summary.md`; `None`
            prints.
        include_simulated: also runs on virtual and simulated devices.
        now: does not wait for a measurement to end.

    Raises:
        UsageError: `out` is a file.
        NoDataError: no sweep has a successful measurement.
    """
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.statistics.summary.summary import run_summaries
    from fleetrank.analysis.statistics.summary.summary_table import summary_table
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.stored.selection import Selection

    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file", "name a folder; each run gets two files in it")
    workspace = readable_workspace()
    with reading_turn(workspace.results, work=Work.ROWS, now=now):
        origins = origins_of(include_simulated=include_simulated)
        selection = Selection(origins=origins, sweep=tuple(sweeps) or None)
        frame = load_measurements(workspace.results, origins=ORIGINS)
        session = Session(frame, selection, results=workspace.results)
        runs = run_summaries(session, _architectures(workspace))
        comparison = in_options(summary_table(session))
    if out is None:
        write_data(f"{json_text(_records(runs), indent=2)}\n".encode())
    else:
        _write_files(out, runs, comparison)


def _records(runs: pl.DataFrame) -> list[dict[str, object]]:
    times = pl.col("started_utc").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    return runs.with_columns(times).to_dicts()


def _write_files(out: Path, runs: pl.DataFrame, comparison: "Table") -> None:
    from fleetrank.analysis.statistics.summary.summary_table import field_rows
    from fleetrank.analysis.tables.formats import render
    from fleetrank.analysis.tables.table import Table

    for at, record in enumerate(_records(runs)):
        run = "/".join(str(record[one]) for one in _OF_RUN)
        # Without characters that a file cannot have.
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", str(record["model"])).strip(".-")[:80]
        name = f"{readable}-{hashlib.sha256(run.encode()).hexdigest()[:_HASH_DIGITS]}"
        replace_file(out / f"{name}.json", f"{json_text(record, indent=2)}\n".encode())
        fields = field_rows(runs[at]).drop("model", "platform")
        page = Table(title=f"{record['model']} on {record['platform']}", frame=fields)
        replace_file(out / f"{name}.md", render(page, "markdown").encode())
    page_text = render(comparison, "markdown", is_explained=True)
    replace_file(out / _COMPARISON, page_text.encode())
    print(out)


def _architectures(workspace: Workspace) -> dict[str, dict[str, int | float]]:
    """Of every language model whose card can be read: by the checksum that rows have."""
    found = {}
    for card in load_cards(workspace.cards).good.values():
        if card.language is None:
            continue
        try:
            found[resolve(card).sha256] = architecture(card.language)
        except ModelError:
            # Its file is missing; the fields stay empty.
            continue
    return found


def architecture(shape: LanguageShape) -> dict[str, int | float]:
    """The values of `summary_fields.ARCHITECTURE`."""
    embedding = embedding_count(shape)
    names = ("layers", "width", "hidden", "heads", "kv_heads", "vocabulary", "context")
    return {name: getattr(shape, name) for name in names} | {
        "embedding_parameters": embedding,
        "embedding_ratio": embedding / parameter_count(shape),
        "glu_expansion": shape.hidden / shape.width,
    }
