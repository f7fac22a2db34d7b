"""`fleetrank models`: networks, and the files exported from them."""

import json
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
    """Print a model's card, as cards/NAME.toml may hold it."""
    card = find_card(_cards(), name)
    if as_json:
        identity = {"runtimes": _runtimes(card), "card_sha256": card_sha256(card)}
        print(json.dumps(asdict(card) | identity, indent=2, ensure_ascii=False))
        return
    print(card_text(card))
    print(f"# runs in {', '.join(_runtimes(card))}; sha256 of the card {card_sha256(card)}")


def card_text(card: ModelCard) -> str:
    """The card as TOML that `models.user_cards` reads back."""
    fields = asdict(card)
    # The folder is where a card lies, not what it says.
    del fields["import_folder"]
    # Text and numbers of TOML are those of JSON.
    lines = (
        f"{key} = {json.dumps(value, ensure_ascii=False)}"
        for key, value in fields.items()
        if value is not None
    )
    return "\n".join(lines)


def _cards() -> dict[str, ModelCard]:
    """The zoo needs no workspace; the user's cards do."""
    return load_cards(current().folder / "cards")


def _runtimes(card: ModelCard) -> list[str]:
    return [RUNTIME_OF_FORMAT[format_] for format_ in formats_of(card)]
