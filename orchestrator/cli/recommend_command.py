"""`fleetrank recommend`: what to measure for which goal, with the workspace's own figures."""

from itertools import groupby
from typing import Annotated

import typer

from orchestrator.cli.context import current
from orchestrator.cli.report_command import (
    ALL_ORIGINS,
    Seed,
    Simulated,
    Sweep,
    Text,
    check_words,
    origins_of,
)


def recommend(
    *,
    goal: Annotated[
        str, typer.Option(help="Such as 'production'; its beginning will do. All by default.")
    ] = "",
    source: Annotated[Text, typer.Option(help="A device, or a platform with * in it.")] = None,
    target: Annotated[Text, typer.Option(help="Likewise.")] = None,
    source_tier: Annotated[Text, typer.Option(help="gpu, cpu or edge.")] = None,
    target_tier: Annotated[Text, typer.Option(help="gpu, cpu or edge.")] = None,
    runtime: Annotated[Text, typer.Option(help="onnx, torch or tflite.")] = None,
    precision: Annotated[Text, typer.Option(help="fp32, fp16, bf16 or int8.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The table, for programs.")] = False,
    sweep: Sweep = None,
    include_simulated: Simulated = False,
    seed: Seed = 0,
) -> None:
    """Say what has to be measured for a goal, and which figures say so.

    `fleetrank report show recommend` prints the same as a table, with every selector.
    """
    from analysis.formats import render
    from analysis.load import load_measurements
    from analysis.tables import Selection, make_table

    check_words(
        {
            "--source-tier": source_tier,
            "--target-tier": target_tier,
            "--runtime": runtime,
            "--precision": precision,
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
        origins=origins_of(include_simulated),
        seed=seed,
        settings=(("goal", goal),),
    )
    frame = load_measurements(current().workspace.results, sweep=sweep, origins=ALL_ORIGINS)
    table = make_table("recommend", frame, selection)
    if as_json:
        print(render(table, "json"), end="")
        return
    for name, rows in groupby(table.frame.iter_rows(named=True), key=lambda row: str(row["goal"])):
        print(f"{name[:1].upper()}{name[1:]}")
        for row in rows:
            print(f"  {row['answer']}")
    print()
    for note in table.notes:
        print(f"# {note}")
