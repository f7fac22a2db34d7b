"""Specifications that a command makes from its options, without a sweep file."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

import yaml

from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Runtime
from fleetrank.models.cards.card import Source, formats_of
from fleetrank.models.cards.zoo import load_cards
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.plan.executions import USUAL_WORKLOADS
from fleetrank.orchestrator.sweep.sweep_run import WrittenSpec
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace
from fleetrank.orchestrator.workspace.yaml_file import parse_content


def made_spec(content: Mapping[str, object], words: Sequence[str]) -> WrittenSpec:
    """The specification, with the command that made it.

    Args:
        content: the keys of a sweep file.
        words: of the command line, without `fleetrank`.

    Raises:
        UsageError: a value is not valid; the message names its key.
    """
    return WrittenSpec(
        spec=parse_content("the options", SweepSpec, dict(content)),
        origin=shlex.join(["fleetrank", *words]),
        text=yaml.safe_dump(dict(content), sort_keys=False),
    )


def workloads_for(
    workspace: Workspace, models: Iterable[str], given: Sequence[str]
) -> dict[str, list[str]]:
    """The key `workloads` of a specification; empty without a given workload.

    Raises:
        UsageError: a model takes no tokens.
        CardError: a model is unknown or its card is not valid.
    """
    if not given:
        return {}
    cards = load_cards(workspace.cards)
    for card in map(cards.find, models):
        if not card.workloads:
            raise UsageError(
                f"{card.name} takes no tokens, so its only workload is image",
                "leave the workload out, or name a language model",
            )
    return {"workloads": list(given)}


def one_workload(
    workspace: Workspace, models: Sequence[str], given: str | None
) -> dict[str, list[str]]:
    """The key `workloads` for a comparison, which needs one; empty for models without tokens.

    Without a given workload it is `decode@128`, or the usual one that the first model answers.

    Raises:
        UsageError: a workload is given, and a model takes no tokens.
        CardError: a model is unknown or its card is not valid.
    """
    kinds = load_cards(workspace.cards).find(models[0]).workloads
    answered = [str(one) for one in reversed(USUAL_WORKLOADS) if one.kind in kinds]
    chosen = given if given is not None else next(iter(answered), None)
    return workloads_for(workspace, models, [] if chosen is None else [chosen])


def runtimes_of(workspace: Workspace, models: Iterable[str], default: Runtime) -> list[str]:
    """The runtimes of the files among the models; without a file, the default.

    Raises:
        CardError: a model is unknown or its card is not valid.
    """
    cards = load_cards(workspace.cards)
    files = [card for card in map(cards.find, models) if card.source is Source.FILE]
    own = {RUNTIME_OF_FORMAT[formats_of(card)[0]] for card in files}
    return sorted(runtime.value for runtime in own or {default})
