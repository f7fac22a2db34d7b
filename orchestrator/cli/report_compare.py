"""`fleetrank report compare`: which cells changed and which are the same; usable as a CI check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.analysis.stored.selection import CHANGE_ALPHA, CHANGE_MARGIN
from fleetrank.analysis.tables.formats import PIPE_WIDTH
from fleetrank.foundation.codec import json_text
from fleetrank.orchestrator.cli.context import readable_workspace
from fleetrank.orchestrator.cli.listing import AsJson
from fleetrank.orchestrator.cli.options import Explain, share
from fleetrank.orchestrator.cli.reading_turn import Now, Work, reading_turn
from fleetrank.orchestrator.cli.sweep_display import EXIT_SLOWER
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import NothingToDoError

if TYPE_CHECKING:
    from fleetrank.analysis.comparison.comparison import Comparison
    from fleetrank.analysis.comparison.gates import Requirement

_MOST_PLATFORMS = 4
"""Named in one message."""


def compare(
    sweep_a: Annotated[str, typer.Argument(metavar="A", help="Baseline sweep.")],
    sweep_b: Annotated[
        str | None, typer.Argument(metavar="B", help="Sweep to check (default: the newest).")
    ] = None,
    *,
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            parser=share,
            metavar="SHARE",
            help="Largest change of no interest, as 5% or 0.05.",
        ),
    ] = CHANGE_MARGIN,
    alpha: Annotated[
        float, typer.Option(help="False discovery rate over the tested cells.")
    ] = CHANGE_ALPHA,
    now: Now = False,
    require_same: Annotated[
        bool,
        typer.Option(
            "--require-same", help="Fail unless all cells are the same within the margin."
        ),
    ] = False,
    require_not_slower: Annotated[
        bool,
        typer.Option(
            "--require-not-slower",
            help="Fail unless all cells are shown to be less than the margin slower.",
        ),
    ] = False,
    require_power: Annotated[
        bool,
        typer.Option(
            "--require-power",
            help="Fail unless a change as large as the margin would be found in any cell.",
        ),
    ] = False,
    explain: Explain = False,
    as_json: AsJson = False,
    junit: Annotated[
        Path | None,
        typer.Option(help="Also write a JUnit file: one test case for each cell."),
    ] = None,
    openmetrics: Annotated[
        Path | None, typer.Option(help="Also write an OpenMetrics file: ratios and verdicts.")
    ] = None,
) -> None:
    """Say which cells of sweep B are slower than in sweep A.

    Verdicts: slower, faster, same within the margin, or undecided. A cell is slower when the
    change exceeds the noise of its repeats and is at least the margin.

    Exit code 5: at least one cell is slower. Exit code 4: no cell could be tested, or something
    that an option requires is not shown.
    """
    from fleetrank.analysis.comparison.comparison import (
        compare_sweeps,
        comparison_json,
        refuse_wrong_limits,
    )
    from fleetrank.analysis.comparison.gates import Requirement
    from fleetrank.orchestrator.store.results import ResultStore

    results = readable_workspace().results
    newest = sweep_b or ResultStore(results).newest_sweep()
    refuse_wrong_limits(sweep_a, newest, threshold=margin, alpha=alpha)
    chosen = (sweep_a, newest)
    with reading_turn(results, chosen, work=Work.ROWS, now=now):
        found = compare_sweeps(results, sweep_a, newest, threshold=margin, alpha=alpha)
    options = {
        Requirement.SAME: require_same,
        Requirement.NOT_SLOWER: require_not_slower,
        Requirement.POWER: require_power,
    }
    required = [one for one, is_wanted in options.items() if is_wanted]
    # First, so that a build server has its files when the job fails.
    _write_files(found, required, junit, openmetrics)
    if as_json:
        print(json_text(comparison_json(found), indent=2))
    else:
        _print_text(found, is_explained=explain)
    _give_exit_code(found, required)


def _write_files(
    found: "Comparison",
    required: "list[Requirement]",
    junit: Path | None,
    openmetrics: Path | None,
) -> None:
    from fleetrank.analysis.comparison.gates import junit_xml, open_metrics

    if junit is not None:
        replace_file(junit, junit_xml(found, required).encode())
    if openmetrics is not None:
        replace_file(openmetrics, open_metrics(found).encode())


def _print_text(found: "Comparison", *, is_explained: bool) -> None:
    from fleetrank.analysis.comparison.comparison import comparison_sentence, worded_table
    from fleetrank.analysis.tables.formats import render
    from fleetrank.orchestrator.cli.terminal import VisibleConsole, print_on_terminal

    table, console = worded_table(found), VisibleConsole()
    if console.is_terminal:
        print_on_terminal(table, console, is_explained=is_explained, full="--json")
    else:
        text = render(
            table,
            "table",
            is_explained=is_explained,
            width=PIPE_WIDTH,
            full="--json prints everything.",
        )
        print(text, end="")
    # A reader of a job's log must see these: an upgrade explains what is slower.
    for difference in found.differences:
        print(difference.sentence)
    print(f"\n{comparison_sentence(found)}")


def _give_exit_code(found: "Comparison", required: "list[Requirement]") -> None:
    from fleetrank.analysis.comparison.gates import unmet_requirements
    from fleetrank.analysis.comparison.verdict import Verdict

    if found.counts[Verdict.SLOWER]:
        raise typer.Exit(EXIT_SLOWER)
    platforms = sorted({cell.platform_key for cell in found.cells})
    if found.counts[Verdict.ONE_SIDED] == len(found.cells) and len(platforms) > 1:
        shown = "; ".join(platforms[:_MOST_PLATFORMS])
        raise NothingToDoError(
            f"no model was measured on the same platform in {found.sweep_a} and {found.sweep_b}; "
            f"their platforms: {shown}",
            "measure the same models on the same platforms in both: device, runtime, options, "
            "threads and `affinity` are parts of a platform",
        )
    if found.n_tested == 0:
        raise NothingToDoError(
            f"no cell of {found.sweep_a} and {found.sweep_b} could be tested for a change",
            "measure the same cells on the same device in both, with at least 5 repeats",
        )
    if unmet := unmet_requirements(found, required):
        raise NothingToDoError(
            "; ".join(unmet),
            "measure both sweeps with more repeats (column more_repeats), on a quieter host, or "
            "allow a larger --margin",
        )
