"""`fleetrank report`: tables, and the page."""

import importlib.util
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from device_agents.errors import MissingLibraryError
from orchestrator.cli.context import current
from orchestrator.cli.host_turn import host_turn
from orchestrator.errors import UsageError

app = typer.Typer(no_args_is_help=True)

_REAL = ("measured", "imported")
ALL_ORIGINS = (*_REAL, "virtual", "simulated")
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
    source: Annotated[Text, typer.Option(help="A device, or a platform with * in it.")] = None,
    target: Annotated[Text, typer.Option(help="Likewise.")] = None,
    source_tier: Annotated[Text, typer.Option(help="gpu, cpu or edge.")] = None,
    target_tier: Annotated[Text, typer.Option(help="gpu, cpu or edge.")] = None,
    runtime: Annotated[Text, typer.Option(help="Such as tflite; qnn is imported only.")] = None,
    precision: Annotated[Text, typer.Option(help="fp32, fp16, bf16 or int8.")] = None,
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
    from analysis.load import load_measurements
    from analysis.tables import Selection, make_table

    check_words(
        {
            "--source-tier": source_tier,
            "--target-tier": target_tier,
            "--runtime": runtime,
            "--precision": precision,
            "--family": family,
        }
    )
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
    # Rows of every origin: the selection leaves some out, and the table says how many.
    frame = load_measurements(current().workspace.results, sweep=sweep, origins=ALL_ORIGINS)
    table = make_table(name, frame, selection)
    print(render(table, (TableFormat.JSON if as_json else format_).value), end="")


def origins_of(include_simulated: bool) -> tuple[str, ...]:
    """Which rows enter figures."""
    return ALL_ORIGINS if include_simulated else _REAL


def _settings(given: list[str]) -> tuple[tuple[str, str], ...]:
    for text in given:
        if "=" not in text or text.startswith("="):
            raise UsageError(f"--set {text}: no value", "write --set NAME=VALUE, such as k=5")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in given))


def check_words(given: dict[str, str | None]) -> None:
    """A misspelt word would select nothing and blame the results.

    Raises:
        UsageError: an option's word is none of those there are.
    """
    from analysis.columns import FAMILIES, PRECISIONS, STORED_RUNTIMES, TIERS

    known = {
        "--source-tier": TIERS,
        "--target-tier": TIERS,
        "--runtime": STORED_RUNTIMES,
        "--precision": PRECISIONS,
        "--family": FAMILIES,
    }
    for option, word in given.items():
        if word is not None and word not in known[option]:
            raise UsageError(f"{option} {word}: no such word", f"use {', '.join(known[option])}")
