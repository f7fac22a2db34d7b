"""`fleetrank report`: tables, and the page."""

import importlib.util
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agents.errors import MissingLibraryError
from orchestrator.cli.context import current
from orchestrator.cli.host_turn import host_turn
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from analysis.tables import Selection, Table

app = typer.Typer(no_args_is_help=True)

_REAL = ("measured", "imported")
_ALL_ORIGINS = (*_REAL, "virtual", "simulated")
_PAGE = "report.html"
_LIBRARIES = ("altair", "jinja2", "vl_convert")


class TableFormat(StrEnum):
    """How a table is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"


Text = str | None
Simulated = Annotated[
    bool,
    typer.Option(
        "--include-simulated", help="Take virtual and simulated devices in, under a banner."
    ),
]
Source = Annotated[Text, typer.Option(help="A device, or a platform with * in it.")]
Target = Annotated[Text, typer.Option(help="Likewise.")]
OfTier = Annotated[Text, typer.Option(help="gpu, cpu or edge.")]
OfRuntime = Annotated[Text, typer.Option(help="Such as tflite; qnn is imported only.")]
OfPrecision = Annotated[Text, typer.Option(help="fp32, fp16, bf16 or int8.")]
Sweep = Annotated[Text, typer.Option(help="One sweep; otherwise the newest of each platform.")]
Seed = Annotated[int, typer.Option(help="Of bootstrap, permutation and null.")]


@app.command()
def build(
    *,
    out: Annotated[
        Path | None, typer.Option(help=f"The file to write; {_PAGE} in the workspace.")
    ] = None,
    sweep: Sweep = None,
    include_simulated: Simulated = False,
    seed: Seed = 0,
) -> None:
    """Write the transfer report as one HTML page that opens without a network."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingLibraryError(
            f"the page needs {', '.join(missing)}, which is not installed",
            "pip install 'fleetrank[report]'",
        )
    from analysis.report.page import build_report

    workspace = current().workspace
    path = out or workspace.root / _PAGE
    with host_turn("report build"):
        build_report(
            workspace.results, path, sweep=sweep, origins=origins_of(include_simulated), seed=seed
        )
    print(path)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Such as latency, memory, transfer, pareto.")],
    *,
    format_: Annotated[TableFormat, typer.Option("--format", help="Form of the table.")] = (
        TableFormat.TABLE
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    sweep: Sweep = None,
    source: Source = None,
    target: Target = None,
    source_tier: OfTier = None,
    target_tier: OfTier = None,
    runtime: OfRuntime = None,
    precision: OfPrecision = None,
    family: Annotated[Text, typer.Option(help="Such as transformer.")] = None,
    model: Annotated[Text, typer.Option(help="A model, or names with * in them.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="What this table alone can be told."),
    ] = None,
    include_simulated: Simulated = False,
    seed: Seed = 0,
) -> None:
    """Print one table: a person's, a program's, or ready for a paper."""
    from analysis.formats import render
    from analysis.tables import Selection

    selection = Selection(
        sweep=sweep,
        source=source,
        target=target,
        source_tier=source_tier,
        target_tier=target_tier,
        runtime=runtime,
        precision=precision,
        family=family,
        model=model,
        origins=origins_of(include_simulated),
        seed=seed,
        settings=_settings(settings or []),
    )
    table = selected_table(name, selection)
    print(render(table, (TableFormat.JSON if as_json else format_).value), end="")


def selected_table(name: str, selection: "Selection") -> "Table":
    """Makes a table of the workspace's results.

    Raises:
        UsageError: a word of the selection is none of those there are.
    """
    from analysis.load import load_measurements
    from analysis.tables import make_table

    _check_words(selection)
    # Rows of every origin: the selection leaves some out, and the table says how many.
    frame = load_measurements(
        current().workspace.results, sweep=selection.sweep, origins=_ALL_ORIGINS
    )
    return make_table(name, frame, selection)


def origins_of(include_simulated: bool) -> tuple[str, ...]:
    """Which rows enter figures."""
    return _ALL_ORIGINS if include_simulated else _REAL


def _settings(given: list[str]) -> tuple[tuple[str, str], ...]:
    for text in given:
        if "=" not in text or text.startswith("="):
            raise UsageError(f"--set {text}: no value", "write --set NAME=VALUE, such as k=5")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in given))


def _check_words(selection: "Selection") -> None:
    """A misspelt word would select nothing and blame the results."""
    from analysis.columns import FAMILIES, PRECISIONS, STORED_RUNTIMES, TIERS

    for option, word, known in (
        ("--source-tier", selection.source_tier, TIERS),
        ("--target-tier", selection.target_tier, TIERS),
        ("--runtime", selection.runtime, STORED_RUNTIMES),
        ("--precision", selection.precision, PRECISIONS),
        ("--family", selection.family, FAMILIES),
    ):
        if word is not None and word not in known:
            raise UsageError(f"{option} {word}: no such word", f"use {', '.join(known)}")
