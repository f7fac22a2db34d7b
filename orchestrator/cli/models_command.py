"""`fleetrank models`: networks, and the files exported from them."""

from dataclasses import asdict
from typing import Annotated

import typer

from models.cards import card_sha256, find_card, formats_of, load_cards
from models.types import RUNTIME_OF_FORMAT, ModelCard
from orchestrator.cli.context import current
from orchestrator.cli.listing import print_table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="Name of the model.")]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models a sweep may name: the study's 13 and those of cards/*.toml."""
    rows = [
        {
            "name": card.name,
            "family": card.family.value,
            "source": card.source.value,
            "input_size": card.input_size,
            "weights_tag": card.weights_tag,
            "accuracy_top1": card.accuracy_top1,
            "runtimes": _runtimes(card),
        }
        for card in _cards().values()
    ]
    print_table(rows, as_json)


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a model's card."""
    card = find_card(_cards(), name)
    row: dict[str, object] = {
        **asdict(card),
        "runtimes": _runtimes(card),
        "card_sha256": card_sha256(card),
    }
    if as_json:
        print_table([row], as_json=True)
    else:
        print_table([{"field": key, "value": value} for key, value in row.items()], as_json=False)


def _cards() -> dict[str, ModelCard]:
    """The zoo needs no workspace; the user's cards do."""
    return load_cards(current().folder / "cards")


def _runtimes(card: ModelCard) -> list[str]:
    return [RUNTIME_OF_FORMAT[format_] for format_ in formats_of(card)]
