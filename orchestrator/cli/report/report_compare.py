"""`fleetrank report compare`: finds cells that got slower; usable as a CI check."""

from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.foundation.strict_json import json_text
from fleetrank.orchestrator.cli.context import current, reading_turn
from fleetrank.orchestrator.cli.output.listing import AsJson
from fleetrank.orchestrator.errors import NothingToDoError

if TYPE_CHECKING:
    from fleetrank.analysis.comparison.comparison import Comparison

EXIT_SLOWER = 5
_THRESHOLD, _ALPHA = 0.02, 0.05
"""Copied from `analysis.comparison`, which is slow to import; a test compares both."""


def compare(
    sweep_a: Annotated[str, typer.Argument(metavar="A", help="Baseline sweep.")],
    sweep_b: Annotated[
        str | None, typer.Argument(metavar="B", help="Sweep to check (default: the newest).")
    ] = None,
    *,
    threshold: Annotated[
        float, typer.Option(help="Ignore changes below this fraction (0.02 = 2 %).")
    ] = _THRESHOLD,
    alpha: Annotated[
        float, typer.Option(help="False discovery rate over the tested cells.")
    ] = _ALPHA,
    as_json: AsJson = False,
) -> None:
    """List the cells of sweep B that are slower than in sweep A.

    A cell is slower when the change exceeds the noise of its repeats.

    Exit code 5: at least one cell is slower. Exit code 4: no cell could be tested.
    """
    from fleetrank.analysis.comparison.comparison import compare_sweeps, comparison_json
    from fleetrank.orchestrator.store.results import ResultStore

    results = current().workspace.results
    newest = sweep_b or ResultStore(results).newest_sweep()
    with reading_turn("report compare", results, sweep_a, newest):
        found = compare_sweeps(results, sweep_a, newest, threshold=threshold, alpha=alpha)
    if as_json:
        print(json_text(comparison_json(found), indent=2))
    else:
        _print_text(found)
    _give_exit_code(found)


def _print_text(found: "Comparison") -> None:
    from fleetrank.analysis.comparison.comparison import comparison_sentence
    from fleetrank.analysis.tables.formats import render

    print(render(found.table, "table"), end="")
    print(f"\n{comparison_sentence(found)}")


def _give_exit_code(found: "Comparison") -> None:
    from fleetrank.analysis.comparison.cell_verdicts import Verdict

    if found.counts[Verdict.SLOWER]:
        raise typer.Exit(EXIT_SLOWER)
    if found.n_tested == 0:
        raise NothingToDoError(
            f"no cell of {found.sweep_a} and {found.sweep_b} could be tested",
            "measure the same cells on the same device in both, with at least 5 repeats",
        )
