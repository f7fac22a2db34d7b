"""`fleetrank models`: networks, and the files exported from them."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from pydantic import ByteSize, Field, TypeAdapter, ValidationError

from fleetrank.analysis.counting import count_of
from fleetrank.device_agents.contract.vocabulary import Runtime
from fleetrank.device_agents.registry import create_agent
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import shortened
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import (
    RUNTIME_OF_FORMAT,
    Artifact,
    ExportRequest,
    ModelCard,
    Source,
    Weights,
    WeightsKind,
)
from fleetrank.models.cards.zoo import card_sha256, find_card, formats_of, load_cards, runtime_of
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.host_turn import host_turn
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.dispatch.drive.stop_switch import StopSwitch, listening
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.export.export_stage import ExportTools, build_artifacts
from fleetrank.orchestrator.progress.line_output import PlainLines
from fleetrank.orchestrator.workspace.sweep_spec import DEFAULT_RUNTIMES

_EXIT_FAILED, _EXIT_INTERRUPTED = 3, 130

_SIZE: TypeAdapter[ByteSize] = TypeAdapter(Annotated[ByteSize, Field(lt=2**63)])

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Names = Annotated[list[str] | None, typer.Argument(help="Models; all when left out.")]
Name = Annotated[str, typer.Argument(help="Name of the model.")]


class WeightsChoice(StrEnum):
    """Weights that need no further words."""

    SEEDED = "seeded"
    PRETRAINED = "pretrained"


WeightsOption = Annotated[WeightsChoice, typer.Option("--weights")]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models: the study's 13 and those of cards/*.toml."""
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
        print(json_text(asdict(card) | identity, indent=2))
        return
    print(card_text(card))
    print(f"# runs in {', '.join(_runtimes(card))}; sha256 of the card {card_sha256(card)}")
    cache = ArtifactCache(current().folder / "artifacts")
    for row in _artifact_rows(cache.peek, _requests([name], WeightsChoice.SEEDED)):
        print("# exported: " + ", ".join(f"{key} {value}" for key, value in row.items()))


@app.command()
def export(
    names: Names = None,
    runtime: Annotated[
        list[Runtime] | None,
        typer.Option(
            help="Only for this runtime; may be repeated. Left out: onnx, torch and tflite."
        ),
    ] = None,
    weights: WeightsOption = WeightsChoice.SEEDED,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the code that comes with a model.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Export models, and verify each file. What is cached is kept."""
    workspace, switch = current().workspace, StopSwitch()
    requests = [request for request in _requests(names, weights) if _is_wanted(request, runtime)]
    tools = ExportTools(
        cache=ArtifactCache(workspace.artifacts),
        infer=create_agent("cpu", {}).infer,
        emit=PlainLines(sys.stderr),
        switch=switch,
        is_trusted=trust,
    )
    with host_turn("models export"), listening(switch):
        exports = build_artifacts(requests, (), tools)
    for request, failure in exports.failures.items():
        # The reason has been told while exporting.
        print(f"  {request.card.name} as {request.format} -> {failure.remedy}", file=sys.stderr)
    print_table([_artifact_row(*found) for found in exports.artifacts.items()], as_json)
    if not exports.is_complete:
        raise typer.Exit(_EXIT_INTERRUPTED)
    if exports.failures:
        raise typer.Exit(_EXIT_FAILED)


@app.command()
def verify(
    names: Names = None, weights: WeightsOption = WeightsChoice.SEEDED, as_json: AsJson = False
) -> None:
    """Check the exported files, and their distance from PyTorch."""
    cache = ArtifactCache(current().workspace.artifacts)
    before = {artifact.path for artifact in cache.entries()}
    rows = _artifact_rows(cache.find, _requests(names, weights))
    if not before:
        raise NothingToDoError("nothing has been exported", "`fleetrank models export` does it")
    print_table(rows, as_json)
    # Looking for a file removes it when its bytes are not those that were stored.
    damaged = before - {artifact.path for artifact in cache.entries()}
    if damaged:
        print(f"{count_of(len(damaged), 'damaged file')} removed", file=sys.stderr)
        print("  -> `fleetrank models export` makes them again", file=sys.stderr)
        raise typer.Exit(_EXIT_FAILED)


@app.command()
def prune(
    max_size: Annotated[str, typer.Option(help="What may stay, as in 2GB; 0 removes all.")],
    as_json: AsJson = False,
) -> None:
    """Remove the exported files used longest ago, until the rest fits."""
    try:
        max_bytes = _SIZE.validate_python(max_size)
    except (ValidationError, OverflowError) as error:
        raise UsageError(
            f"'{shortened(max_size)}' is not a size", "write it as 500MB or 2GiB"
        ) from error
    with host_turn("models prune"):
        removed = ArtifactCache(current().workspace.artifacts).prune(max_bytes)
    print_table([{"removed": path.name} for path in removed], as_json)


def card_text(card: ModelCard) -> str:
    """The card as TOML that `models.cards.user_cards` reads back."""
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


def _artifact_rows(
    look: Callable[[ExportRequest], Artifact | None], requests: Sequence[ExportRequest]
) -> list[dict[str, object]]:
    """Of those that have been exported."""
    found = ((request, look(request)) for request in requests)
    return [_artifact_row(request, artifact) for request, artifact in found if artifact]


def _artifact_row(request: ExportRequest, artifact: Artifact) -> dict[str, object]:
    return {
        "model": request.card.name,
        "format": request.format.value,
        "size_bytes": artifact.size_bytes,
        "max_relative_error": artifact.max_relative_error,
        "macs": artifact.cost.macs,
        "sha256": artifact.sha256,
    }


def _requests(names: list[str] | None, weights: WeightsChoice) -> list[ExportRequest]:
    """Every format of the models named, or of all."""
    cards = _cards()
    chosen = [find_card(cards, name) for name in names] if names else list(cards.values())
    return [
        ExportRequest(card=card, weights=_weights(card, weights), format=format_)
        for card in chosen
        for format_ in formats_of(card)
    ]


def _is_wanted(request: ExportRequest, runtimes: list[Runtime] | None) -> bool:
    """Without a choice: the default runtimes, and a user's file in whichever it runs."""
    if runtimes is None:
        return request.card.source is Source.FILE or runtime_of(request) in DEFAULT_RUNTIMES
    return runtime_of(request) in runtimes


def _weights(card: ModelCard, weights: WeightsChoice) -> Weights:
    is_file = card.source is Source.FILE
    return Weights(kind=WeightsKind.EMBEDDED if is_file else WeightsKind(weights))


def _cards() -> dict[str, ModelCard]:
    """The zoo needs no workspace; the user's cards do."""
    return load_cards(current().folder / "cards")


def _runtimes(card: ModelCard) -> list[str]:
    return [RUNTIME_OF_FORMAT[format_] for format_ in formats_of(card)]
