"""How commands that run a sweep show progress, and what they print at the end."""

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.tables.text_columns import grid_of_rows, lines_of
from fleetrank.foundation.vocabulary import CellVerdict
from fleetrank.foundation.workload import IMAGE
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.reading_turn import Work, reading_turn
from fleetrank.orchestrator.cli.sweep_options import Progress

if TYPE_CHECKING:
    import polars as pl

    from fleetrank.analysis.panel.session import Session
    from fleetrank.orchestrator.progress import Subscriber
    from fleetrank.orchestrator.progress_events import SweepFinished
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions

EXIT_FAILED_CELLS, EXIT_SLOWER, EXIT_INTERRUPTED = 3, 5, 130
_WIDTH = 100
"""Letters of a line of latencies in a pipe."""
_MOST_LINES = 15
"""Of latencies at the end of a sweep; `report show latency` has all of them."""


@contextmanager
def shown_progress(progress: Progress) -> "Iterator[list[Subscriber]]":
    """The event subscribers of a progress style; restores the terminal at the end."""
    from fleetrank.orchestrator.progress import JsonLines, PlainLines

    if progress is Progress.NONE:
        yield []
    elif progress is Progress.JSONL:
        yield [JsonLines(sys.stdout)]
    elif progress is Progress.AUTO and sys.stdout.isatty():
        from fleetrank.orchestrator.cli.live_table import LiveConsole
        from fleetrank.orchestrator.cli.terminal import VisibleConsole

        live = LiveConsole(VisibleConsole())
        try:
            yield [live]
        finally:
            live.close()
    else:
        yield [PlainLines(sys.stdout)]


def result_stream(progress: Progress) -> TextIO:
    """Where the result is printed: with JSON progress, standard output holds only JSON lines."""
    return sys.stderr if progress is Progress.JSONL else sys.stdout


def conclude(
    outcome: "SweepFinished",
    options: "RunOptions",
    stream: TextIO | None,
    *,
    has_printed_cells: bool = False,
) -> None:
    """Prints what was found and the next commands, and exits with the exit code.

    Args:
        outcome: of the sweep.
        options: of this run; the command that continues the sweep repeats them.
        stream: `None` prints nothing, because the command has printed its result as JSON.
        has_printed_cells: the command has printed the figures.
    """
    if stream is not None:
        results = current().workspace.results
        print(f"results: {results / f'measurements/sweep_id={outcome.sweep_id}'}", file=stream)
        lines_of_cells = noisy_lines if has_printed_cells else found_lines
        for line in (
            *lines_of_cells(results, outcome.sweep_id),
            *_next_steps(outcome, options),
        ):
            print(line, file=stream)
    if outcome.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if outcome.n_missing:
        raise typer.Exit(EXIT_FAILED_CELLS)


def found_lines(results: Path, sweep_id: str) -> Iterator[str]:
    """The latencies of a finished sweep, how many are steady, and the pair that surprises most.

    Empty where `with_judgement` is.
    """
    judged = with_judgement(results, sweep_id)
    for cells in judged:
        yield from _matrix_lines(cells)
        n_steady = cells.filter(verdict=CellVerdict.STEADY).height
        n_ranged = cells["latency_low_ns"].count()
        steady = f"steady: {n_steady} of {cells.height} figures, {n_ranged} with a 95 % interval."
        yield " ".join((steady, *_noise_of(results, cells)))
    if judged:
        yield from _surprise(results)


def noisy_lines(results: Path, sweep_id: str) -> Iterator[str]:
    """Which cells of each workload are noisy, or unlike they were in other sweeps, and why."""
    for cells in with_judgement(results, sweep_id):
        yield from _noise_of(results, cells)


def _noise_of(results: Path, cells: "pl.DataFrame") -> Iterator[str]:
    from fleetrank.analysis.statistics.measured.verdicts import history_sentences, sweep_sentences
    from fleetrank.analysis.stored.load import load_measurements

    yield from sweep_sentences(cells)
    yield from history_sentences(cells, load_measurements(results))


def _matrix_lines(cells: "pl.DataFrame") -> list[str]:
    """The way round with fewer lines that fits a line; none if both have too many."""
    from fleetrank.analysis.labels import labels_of
    from fleetrank.analysis.statistics.measured.latency_tables import latency_matrix

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    matrix = latency_matrix(cells)
    labels = labels_of(matrix.columns[1:]).names
    matrix = matrix.rename({"model": "ms", **labels})
    turned = matrix.transpose(include_header=True, header_name="ms", column_names="ms")
    ways = [
        lines_of(replace(grid_of_rows(one.to_dicts()), numbers=frozenset(one.columns[1:])))
        for one in (matrix, turned)
    ]
    fit = [lines for lines in ways if len(lines) <= _MOST_LINES and max(map(len, lines)) <= width]
    return min(fit, key=len, default=[])


def _surprise(results: Path) -> Iterator[str]:
    """The order of two models that most other devices reverse; nothing if no other is known."""
    from fleetrank.analysis.errors import AnalysisError
    from fleetrank.analysis.statistics.pairs.pair_answer import pair_sentences
    from fleetrank.analysis.statistics.pairs.pairs import main_pair

    with suppress(AnalysisError), reading_turn(results, work=Work.PAIRS, now=True):
        answer = main_pair(_session(results))
        if answer and any(one.device != answer.here.device for one in answer.targets):
            yield pair_sentences(answer)[0]


@cache
def with_judgement(results: Path, sweep_id: str) -> tuple["pl.DataFrame", ...]:
    """The cells of each workload of a finished sweep, with verdicts.

    Empty in an installation without the extra `analysis`, which measures and has no verdicts.
    """
    from fleetrank.analysis.errors import AnalysisError

    with suppress(AnalysisError, ModuleNotFoundError):
        from fleetrank.analysis.statistics.measured.verdicts import with_verdicts

        session = _session(results, sweep_id)
        known = [one for one in session.workloads if session.cells_of(one) is not None]
        return tuple(with_verdicts(session.of_workload(one)) for one in known)
    return ()


def _session(results: Path, sweep_id: str | None = None) -> "Session":
    """The rows of a sweep, of any origin, or all that tables use."""
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.stored.selection import Selection

    chosen = Selection(origins=ORIGINS, sweep=sweep_id) if sweep_id else Selection()
    return Session(load_measurements(results, sweep=sweep_id, origins=chosen.origins), chosen)


def _next_steps(outcome: "SweepFinished", options: "RunOptions") -> Iterator[str]:
    sweep_id = outcome.sweep_id
    # Without this option the report excludes simulated rows.
    unreal = ["--include-simulated"] if outcome.is_unreal else []
    report = fleetrank_command("report", "build", *unreal)
    if not (outcome.n_missing or outcome.is_interrupted):
        yield f"next:    {'; '.join([report, *_first_steps()])}"
        return
    yield f"details: {fleetrank_command('sweep', 'status', sweep_id)}"
    if outcome.is_interrupted:
        chosen = [
            *(["--retry-failed"] if options.retries_failed else []),
            *(["--repeat-noisy"] if options.repeats_noisy else []),
            *_only_of(options),
            *_options_of(options),
        ]
        yield f"go on:   {fleetrank_command('sweep', 'resume', sweep_id, *chosen)}"
        return
    chosen = [*(["--retry-failed"] if outcome.n_failed else []), *_options_of(options)]
    yield f"next:    {fleetrank_command('sweep', 'resume', sweep_id, *chosen)}"
    if outcome.n_ok:
        yield f"report:  {report}"


def _first_steps() -> Iterator[str]:
    """How to measure a file and a phone, in a workspace that has none."""
    workspace = current().workspace
    if not any(workspace.cards.glob("*.toml")):
        yield f"a file of yours: {fleetrank_command('run', 'mine.onnx')}"
    if not any(workspace.devices.glob("*.yaml")):
        yield f"a phone: {fleetrank_command('devices', 'list', '--found')}"


def fleetrank_command(*words: str) -> str:
    """A command line for the same workspace, to be copied into a shell."""
    root = current().given_root
    place = [] if root is None else ["--workspace", str(root)]
    return shlex.join(["fleetrank", *words, *place])


def _only_of(options: "RunOptions") -> list[str]:
    return [] if options.restricted_to is None else ["--only", options.restricted_to]


def _options_of(options: "RunOptions") -> list[str]:
    """The options that the next run of the sweep needs too."""
    return [
        *(["--inline"] if options.is_inline else []),
        *(["--cluster", options.cluster] if options.cluster is not None else []),
        *(["--trust"] if options.is_trusted else []),
    ]


_SHOWN = (
    "model", "platform", "workload", "latency_ms", "latency_low_ms", "latency_high_ms",
    "tokens_per_s", "peak_memory_mib", "on_backend", "verdict", "why", "origin",
)  # fmt: skip


def shown_cells(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """What a person reads of `cell_rows`: without columns that have no value."""
    named = (
        row
        | {
            "platform": row["platform_key"],
            "workload": None if row["workload"] == str(IMAGE) else row["workload"],
            "on_backend": _placement(row),
            "origin": None if row["origin"] == "measured" else row["origin"],
        }
        for row in map(dict, rows)
    )
    shown = [{name: row[name] for name in _SHOWN} for row in named]
    used = {name for row in shown for name, value in row.items() if value is not None}
    return [{name: row[name] for name in row if name in used} for row in shown]


def _placement(row: Mapping[str, object]) -> str | None:
    if row["backend_nodes"] is None or row["graph_nodes"] is None:
        return None
    return f"{row['backend_nodes']} of {row['graph_nodes']} nodes"
