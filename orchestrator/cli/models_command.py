"""`fleetrank models`: networks and their exported files."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from fleetrank.device_agents.registry import HOST_CPU, create_agent
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.formats import format_of, runtime_of
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.user_file import bytes_of
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import Format, Precision, Runtime, WeightsKind
from fleetrank.foundation.wording import with_flags
from fleetrank.foundation.workload import Workload
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import (
    Artifact,
    ExportRequest,
    ModelCard,
    ResolvedCard,
    Source,
    Weights,
    formats_of,
)
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import Cards, card_text, load_cards
from fleetrank.models.errors import CardError
from fleetrank.models.export.exporters import why_not_precision
from fleetrank.orchestrator.cli.context import current, host_turn
from fleetrank.orchestrator.cli.listing import AsJson, TableView, print_table, with_view
from fleetrank.orchestrator.cli.options import WorkloadsOption, runtime_option
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch, listening
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.export import build_artifacts
from fleetrank.orchestrator.one_export import ExportTools
from fleetrank.orchestrator.plan.executions import USUAL_WORKLOADS, workloads_of
from fleetrank.orchestrator.workspace.sweep_spec import DEFAULT_RUNTIMES

_EXIT_FAILED, _EXIT_INTERRUPTED = 3, 130

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Names = Annotated[list[str] | None, typer.Argument(help="Models (default: all).")]
Name = Annotated[str, typer.Argument(help="Name of the model.")]


class WeightsChoice(StrEnum):
    """Weights that are fully described by their kind."""

    SEEDED = "seeded"
    PRETRAINED = "pretrained"


WeightsOption = Annotated[WeightsChoice, typer.Option("--weights")]


@app.command("list")
@with_view
def list_models(*, as_json: AsJson = False, view: TableView) -> None:
    """List the built-in models and those in cards/*.toml."""
    cards = _cards()
    rows: list[dict[str, object]] = [
        {
            "name": card.name,
            "family": card.family.value,
            "source": card.source.value,
            "input_size": card.input_size,
            "weights_tag": card.weights_tag,
            "accuracy_top1": card.accuracy_top1,
            "runtimes": _runtimes(card),
        }
        for card in cards.good.values()
    ]
    if as_json:
        bad = [
            {**dict.fromkeys(rows[0]), "name": name, "error": f"{error.message}: {error.remedy}"}
            for name, error in cards.bad.items()
        ]
        print_table([*({**row, "error": None} for row in rows), *bad], as_json=True, view=view)
        return
    print_table(rows, as_json=False, view=view)
    for error in cards.bad.values():
        print(f"not usable: {error.message}\n  -> {with_flags(error.remedy)}")


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Print a model's card in the format of cards/NAME.toml."""
    card = _cards().find(name)
    model = resolve(card)
    if as_json:
        identity = {
            "runtimes": _runtimes(card),
            "card_sha256": model.sha256,
            "precision": model.precision,
        }
        print(json_text(asdict(card) | identity, indent=2))
        return
    print(card_text(card))
    print(f"# runs in {', '.join(_runtimes(card))}; sha256 of the card {model.sha256}")
    cache = ArtifactCache(current().folder / "artifacts")
    for row in _artifact_rows(cache.peek, _requests([model], WeightsChoice.SEEDED)):
        print("# exported: " + ", ".join(f"{key} {value}" for key, value in row.items()))


@app.command()
def export(
    names: Names = None,
    *,
    runtime: Annotated[
        list[Runtime] | None,
        runtime_option("Runtime to export for; may be repeated (default: onnx, torch and tflite)."),
    ] = None,
    precision: Annotated[
        list[Precision] | None,
        typer.Option(help="Precision such as int8; may be repeated (default: fp32)."),
    ] = None,
    weights: WeightsOption = WeightsChoice.SEEDED,
    workload: WorkloadsOption = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Allow model-supplied code to run. Review it first.")
    ] = False,
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Export nothing: delete the exports that were not used for longest until the "
            "cache fits, as 2GB; 0 deletes all.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export models and verify each file against PyTorch. Cached files are checked and reused."""
    from fleetrank.orchestrator.progress import PlainLines

    workspace, switch = current().workspace, StopSwitch()
    if max_size is not None:
        if names:
            raise UsageError("--max-size exports no model", "leave the models out")
        with host_turn("models export --max-size"):
            removed = ArtifactCache(workspace.artifacts).prune(_bytes(max_size))
        print_table([{"removed": path.name} for path in removed], as_json)
        return
    cards = _cards()
    chosen = _chosen(cards, names)
    wanted = [c for c in chosen if any(_is_wanted(c, f, runtime) for f in formats_of(c))]
    errors: list[FleetError] = _elsewhere(chosen, wanted) if names else [*cards.bad.values()]
    if names and not wanted:
        raise errors[0]
    models, unreadable = _resolved(wanted)
    errors += unreadable
    requests = [
        request
        for request in _requests(models, weights, workload, precision)
        if _is_wanted(request.card, request.format, runtime)
    ]
    refused = {one: why for one in requests if (why := why_not_precision(one)) is not None}
    errors += [
        NothingToDoError(f"{one.card.name}: {why}", "leave this runtime or precision out")
        for one, why in refused.items()
    ]
    requests = [one for one in requests if one not in refused]
    tools = ExportTools(
        cache=ArtifactCache(workspace.artifacts),
        infer=create_agent(HOST_CPU, {}).infer,
        emit=PlainLines(sys.stderr),
        switch=switch,
        purpose="`fleetrank models export`",
        is_trusted=trust,
    )
    with listening(switch):
        exports = build_artifacts(requests, (), tools)
    for error in errors:
        print(f"{error.message}\n  -> {with_flags(error.remedy)}", file=sys.stderr)
    print_table(_artifact_rows(exports.artifacts.get, list(dict.fromkeys(requests))), as_json)
    if not exports.is_complete:
        raise typer.Exit(_EXIT_INTERRUPTED)
    if exports.failures or errors:
        raise typer.Exit(_EXIT_FAILED)


def _bytes(size: str) -> int:
    try:
        return int(str(bytes_of(size)))
    except ValueError as error:
        raise UsageError(
            f"'{shortened(size)}' is not a size", "write it as 500MB or 2GiB"
        ) from error


def _artifact_rows(
    look: Callable[[ExportRequest], Artifact | None], requests: Sequence[ExportRequest]
) -> list[dict[str, object]]:
    """Rows about the exported files."""
    found = ((request, look(request)) for request in requests)
    return [_artifact_row(request, artifact) for request, artifact in found if artifact]


def _artifact_row(request: ExportRequest, artifact: Artifact) -> dict[str, object]:
    return {
        "model": request.card.name,
        "format": request.format.value,
        "workload": str(request.workload),
        "precision": request.precision,
        "size_bytes": artifact.size_bytes,
        "max_relative_error": artifact.max_relative_error,
        "snr_db": artifact.snr_db,
        "macs": artifact.cost.macs,
        "sha256": artifact.sha256,
    }


def _chosen(cards: Cards, names: list[str] | None) -> list[ModelCard]:
    """The named cards, or all valid cards of models that do not take tokens."""
    cards.check(names or ())
    if names:
        return [cards.find(name) for name in names]
    return [card for card in cards.good.values() if not card.workloads]


def _elsewhere(chosen: list[ModelCard], wanted: list[ModelCard]) -> list[FleetError]:
    """The errors of chosen models that run in no given runtime."""
    cards = [card for card in chosen if card not in wanted]
    return [
        NothingToDoError(
            f"{card.name} is a file that runs in {', '.join(_runtimes(card))} only",
            f"--runtime {_runtimes(card)[0]} exports it; for other runtimes convert the file "
            "yourself, or give the network as an entry point",
        )
        for card in cards
    ]


def _resolved(cards: Iterable[ModelCard]) -> tuple[list[ResolvedCard], list[CardError]]:
    """The models, and the errors of cards whose file cannot be read, or an axis has no size."""
    models, errors = list[ResolvedCard](), list[CardError]()
    for card in cards:
        try:
            model = resolve(card)
            model.sized_inputs(card.axes, 1, USUAL_WORKLOADS[0])
            models.append(model)
        except CardError as error:
            errors.append(error)
    return models, errors


def _requests(
    models: Iterable[ResolvedCard],
    weights: WeightsChoice,
    workloads: list[Workload] | None = None,
    precisions: list[Precision] | None = None,
) -> list[ExportRequest]:
    """Every format, workload and precision of the models; a file has its own precision."""
    kinds = {Source.FILE: WeightsKind.EMBEDDED}
    return [
        ExportRequest(
            model=model,
            weights=Weights(kind=kinds.get(model.card.source, WeightsKind(weights))),
            format=format_,
            precision=precision,
            axes=model.card.axes,
            workload=workload,
        )
        for model in models
        for precision in ([model.precision] if model.precision else precisions or [Precision.FP32])
        for workload in workloads_of(model.card, workloads)
        for format_ in formats_of(model.card)
    ]


def _is_wanted(card: ModelCard, format_: Format, runtimes: list[Runtime] | None) -> bool:
    """Runtimes to export for; by default the standard ones, and for a user's file its own."""
    if runtimes is None:
        return card.source is Source.FILE or runtime_of(format_) in DEFAULT_RUNTIMES
    return format_ in map(format_of, runtimes)


def _cards() -> Cards:
    """All model cards; only the user's own cards need a workspace."""
    return load_cards(current().folder / "cards")


def _runtimes(card: ModelCard) -> list[str]:
    return [runtime_of(format_) for format_ in formats_of(card)]
