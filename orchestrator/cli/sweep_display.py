"""How commands that run a sweep show progress, and what they print at the end."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.foundation.inputs import IMAGE
from fleetrank.foundation.vocabulary import BYTES_PER_MIB, NS_PER_MS, NS_PER_S
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.options import Progress
from fleetrank.orchestrator.progress import Subscriber

if TYPE_CHECKING:
    import polars as pl

    from fleetrank.orchestrator.progress import SweepFinished
    from fleetrank.orchestrator.sweep.sweep_session import RunOptions

EXIT_FAILED_CELLS, EXIT_SLOWER, EXIT_INTERRUPTED = 3, 5, 130


@contextmanager
def shown_progress(progress: Progress) -> Iterator[list[Subscriber]]:
    """The event subscribers of a progress style; restores the terminal at the end."""
    from fleetrank.orchestrator.cli.terminal import LiveConsole, VisibleConsole
    from fleetrank.orchestrator.progress import JsonLines, PlainLines

    if progress is Progress.NONE:
        yield []
    elif progress is Progress.JSONL:
        yield [JsonLines(sys.stdout)]
    elif progress is Progress.AUTO and sys.stdout.isatty():
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


def conclude(outcome: "SweepFinished", options: "RunOptions", stream: TextIO | None) -> None:
    """Prints the results folder and the next commands, and exits with the exit code.

    Args:
        outcome: of the sweep.
        options: of this run; the command that continues the sweep repeats them.
        stream: `None` prints nothing, because the command has printed its result as JSON.
    """
    if stream is not None:
        store_folder = current().workspace.results / f"measurements/sweep_id={outcome.sweep_id}"
        print(f"results: {store_folder}", file=stream)
        for line in noisy_lines(current().workspace.results, outcome.sweep_id):
            print(line, file=stream)
        for line in _next_steps(outcome, options):
            print(line, file=stream)
    if outcome.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if outcome.n_missing:
        raise typer.Exit(EXIT_FAILED_CELLS)


def noisy_lines(results: Path, sweep_id: str) -> Iterator[str]:
    """Which cells of each workload are noisy, or unlike they were in other sweeps, and why."""
    for cells in _judged(results, sweep_id):
        from fleetrank.analysis.statistics.verdicts import history_sentences, sweep_sentences
        from fleetrank.analysis.stored.load import load_measurements

        yield from sweep_sentences(cells)
        yield from history_sentences(cells, load_measurements(results))


@cache
def _judged(results: Path, sweep_id: str) -> tuple["pl.DataFrame", ...]:
    """The cells of each workload of a finished sweep, with verdicts.

    Empty in an installation without the extra `analysis`, which measures and has no verdicts.
    """
    from fleetrank.analysis.errors import AnalysisError

    with suppress(AnalysisError, ModuleNotFoundError):
        from fleetrank.analysis.panel.session import Session
        from fleetrank.analysis.statistics.verdicts import with_verdicts
        from fleetrank.analysis.stored.load import load_measurements
        from fleetrank.analysis.stored.selection import Selection

        rows = load_measurements(results, sweep=sweep_id, origins=ORIGINS)
        session = Session(rows, Selection(origins=ORIGINS, sweep=sweep_id))
        known = [one for one in session.workloads if session.cells_of(one) is not None]
        return tuple(with_verdicts(session.of_workload(one)) for one in known)
    return ()


def _next_steps(outcome: "SweepFinished", options: "RunOptions") -> Iterator[str]:
    sweep_id = outcome.sweep_id
    # Without this option the report excludes simulated rows.
    unreal = ["--include-simulated"] if outcome.is_unreal else []
    report = fleetrank_command("report", "build", *unreal)
    if not (outcome.n_missing or outcome.is_interrupted):
        yield f"next:    {report}"
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


# What a command prints about the cells of one sweep: figures with their interval and verdict.


def cell_rows(results: Path, sweep_id: str) -> list[dict[str, object]]:
    """One row for each measured cell of a sweep, simulated ones too; empty if nothing worked."""
    from fleetrank.analysis.errors import NoDataError
    from fleetrank.analysis.stored.cell_values import cell_values
    from fleetrank.analysis.stored.load import load_measurements

    try:
        cells = cell_values(load_measurements(results, sweep=sweep_id, origins=ORIGINS))
    except NoDataError:
        return []
    verdicts = {
        (row["cell_key"], row["workload"]): {"verdict": row["verdict"], "why": row["why"]}
        for judged in _judged(results, sweep_id)
        for row in judged.iter_rows(named=True)
    }
    unknown: dict[str, object] = {"verdict": None, "why": None}
    return [
        _row(cell) | verdicts.get((cell["cell_key"], cell["workload"]), unknown)
        for cell in cells.iter_rows(named=True)
    ]


def _row(cell: Mapping[str, object]) -> dict[str, object]:
    nodes, of_nodes = cell["backend_nodes"], cell["graph_nodes"]
    return {
        "model": cell["model"],
        "platform_key": cell["platform_key"],
        "axes": cell["axes"],
        "workload": cell["workload"],
        "tokens_per_s": _tokens_per_s(cell),
        "origin": cell["origin"],
        "statistic": cell["statistic"],
        "latency_ms": _scaled(cell["latency_ns"], NS_PER_MS),
        "latency_low_ms": _scaled(cell["latency_low_ns"], NS_PER_MS),
        "latency_high_ms": _scaled(cell["latency_high_ns"], NS_PER_MS),
        "interval_reason": cell["interval_reason"],
        "n_repeats": cell["n_repeats"],
        "peak_memory_mib": _scaled(cell["peak_memory_bytes"], BYTES_PER_MIB),
        "memory_metric": cell["memory_metric"],
        "backend": cell["backend"],
        "backend_nodes": nodes,
        "graph_nodes": of_nodes,
        "flags": cell["flags"],
    }


def _tokens_per_s(cell: Mapping[str, object]) -> float | None:
    tokens, latency_ns = cell["tokens_per_inference"], cell["latency_ns"]
    if not isinstance(tokens, int) or not isinstance(latency_ns, float) or latency_ns <= 0:
        return None
    return tokens / (latency_ns / NS_PER_S)


def _scaled(value: object, unit: float) -> float | None:
    return value / unit if isinstance(value, int | float) else None


def shown_cells(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """What a person reads of `cell_rows`: without columns that have no value."""
    shown = [
        {
            "model": row["model"],
            "platform": row["platform_key"],
            "workload": None if row["workload"] == str(IMAGE) else row["workload"],
            "latency_ms": row["latency_ms"],
            "latency_low_ms": row["latency_low_ms"],
            "latency_high_ms": row["latency_high_ms"],
            "tokens_per_s": row["tokens_per_s"],
            "peak_memory_mib": row["peak_memory_mib"],
            "on_backend": _placement(row),
            "verdict": row["verdict"],
            "why": row["why"],
            "origin": None if row["origin"] == "measured" else row["origin"],
        }
        for row in rows
    ]
    used = {name for row in shown for name, value in row.items() if value is not None}
    return [{name: row[name] for name in row if name in used} for row in shown]


def _placement(row: Mapping[str, object]) -> str | None:
    if row["backend_nodes"] is None or row["graph_nodes"] is None:
        return None
    return f"{row['backend_nodes']} of {row['graph_nodes']} nodes"
