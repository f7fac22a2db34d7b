"""The selectors as options of commands; `orchestrator.workspace.selectors` explains them."""

from typing import Annotated

import typer

from fleetrank.orchestrator.workspace.selectors import MAX_SEED, describe

Text = str | None
Sweep = Annotated[Text, typer.Option(help=describe("sweep"))]
Source = Annotated[Text, typer.Option(help=describe("source"))]
Target = Annotated[Text, typer.Option(help=describe("target"))]
SourceTier = Annotated[Text, typer.Option(help=describe("source_tier"))]
TargetTier = Annotated[Text, typer.Option(help=describe("target_tier"))]
OfRuntime = Annotated[Text, typer.Option("--runtime", help=describe("runtime"))]
OfPrecision = Annotated[Text, typer.Option("--precision", help=describe("precision"))]
OfFamily = Annotated[Text, typer.Option("--family", help=describe("family"))]
OfModel = Annotated[Text, typer.Option("--model", help=describe("model"))]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=describe("settings"))
]
Simulated = Annotated[bool, typer.Option("--include-simulated", help=describe("include_simulated"))]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help=describe("seed"))]
