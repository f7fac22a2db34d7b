"""The JSON messages between parent and exporting child."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fleetrank.foundation.vocabulary import Family, FlopsMethod, Format, WeightsKind
from fleetrank.models.cards.card import (
    Cost,
    ExportRequest,
    ModelCard,
    ResolvedCard,
    Source,
    StagedExport,
    Weights,
)
from fleetrank.models.errors import ExportError, ModelError, UntrustedError

_ERRORS = {"ExportError": ExportError, "UntrustedError": UntrustedError}


def request_to_json(request: ExportRequest) -> str:
    """A request as JSON, for the child's standard input and the cache's index."""
    return json.dumps(asdict(request), sort_keys=True)


def request_from_json(text: str) -> ExportRequest:
    """Inverse of `request_to_json`; both processes run the same version of fleetrank."""
    fields: dict[str, Any] = json.loads(text)
    model, weights = fields.pop("model"), fields.pop("weights")
    card = model["card"]
    card |= {"family": Family(card["family"]), "source": Source(card["source"])}
    weights |= {"kind": WeightsKind(weights["kind"])}
    fields |= {"format": Format(fields["format"])}
    resolved = ResolvedCard(card=ModelCard(**card), sha256=model["sha256"])
    return ExportRequest(model=resolved, weights=Weights(**weights), **fields)


def cost_of(*, macs: int | None, parameters: int | None, method: str | None) -> Cost:
    """A cost from the fields of its JSON form."""
    return Cost(
        macs=macs,
        parameters=parameters,
        method=None if method is None else FlopsMethod(method),
    )


def staged_to_json(staged: StagedExport) -> str:
    """The child's answer for a success."""
    return json.dumps(asdict(staged), default=str)


def error_to_json(error: ModelError) -> str:
    """The child's answer for a failure."""
    name = "UntrustedError" if isinstance(error, UntrustedError) else "ExportError"
    return json.dumps({"error": name, "message": error.message, "remedy": error.remedy})


def staged_from_json(text: str) -> StagedExport:
    """Parses the child's answer.

    Raises:
        ExportError: the child's error, with its class and text.
        UntrustedError: the same, for a child that lacked trust.
        ValueError: the text is not an answer.
    """
    try:
        fields: dict[str, Any] = json.loads(text)
    except RecursionError as error:
        raise ValueError("the answer is nested too deeply") from error
    if "error" in fields:
        raise _ERRORS[fields["error"]](fields["message"], fields["remedy"])
    paths = (fields["inputs_path"], fields["reference_path"])
    inputs_path, reference_path = (None if path is None else Path(path) for path in paths)
    return StagedExport(
        path=Path(fields["path"]),
        format=Format(fields["format"]),
        cost=cost_of(**fields["cost"]),
        versions=tuple((name, version) for name, version in fields["versions"]),
        inputs_path=inputs_path,
        reference_path=reference_path,
    )
