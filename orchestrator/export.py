"""Exports and verifies every file that a sweep needs, before any measurement."""

import sys
from collections.abc import Iterable

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.registry import HOST_CPU, create_agent
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import Artifact, ExportRequest
from fleetrank.models.networks.primer import canary_request, primer_request
from fleetrank.orchestrator.dispatch.decide.work import Exports
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.errors import NothingToDoError
from fleetrank.orchestrator.export_lines import export_all
from fleetrank.orchestrator.one_export import ExportTools
from fleetrank.orchestrator.progress_events import Notice
from fleetrank.orchestrator.workspace.workspace import Workspace


def build_artifacts(
    requests: Iterable[ExportRequest], primed: Iterable[Format], tools: ExportTools
) -> Exports:
    """Finds or exports the file of each distinct request, in parallel as memory allows.

    Measuring starts after it returns, so that no export disturbs a measurement. Those of other
    sweeps on this host take turns with it, between two models.

    Args:
        requests: files to measure; equal ones are exported once.
        primed: formats that also need a primer.
        tools: the tools to use.
    """
    wanted = tuple(dict.fromkeys(requests))
    primers = {primer_request(format_): format_ for format_ in sorted(set(primed))}
    results, is_complete = export_all((*primers, *wanted), tools)
    artifacts = {r: found for r, found in results.items() if isinstance(found, Artifact)}
    failures = {r: found for r, found in results.items() if isinstance(found, Failure)}
    for request in primers:
        if request in failures:
            tools.emit(
                Notice(
                    level="warning",
                    message=f"no primer for {request.format}, so memory figures include what the "
                    f"runtime itself loads: {failures[request].message}",
                )
            )
    return Exports(
        artifacts={r: found for r, found in artifacts.items() if r not in primers},
        failures={r: found for r, found in failures.items() if r not in primers},
        primers={primers[r]: found for r, found in artifacts.items() if r in primers},
        is_complete=is_complete,
    )


def canary_artifact(workspace: Workspace) -> Artifact:
    """Finds or exports the canary; it is verified like any other export.

    Raises:
        NothingToDoError: it cannot be exported here; the remedy names what is missing.
    """
    request = canary_request()
    cache = ArtifactCache(workspace.artifacts)
    found = cache.find(request)
    if found is not None:
        return found
    from fleetrank.orchestrator.progress import PlainLines

    tools = ExportTools(
        cache=cache,
        infer=create_agent(HOST_CPU, {}).infer,
        emit=PlainLines(sys.stderr),
        switch=StopSwitch(),
        purpose="the export of the canary model",
    )
    exports = build_artifacts([request], (), tools)
    if request in exports.failures:
        failure = exports.failures[request]
        raise NothingToDoError(
            f"the canary model is not available: {failure.message}", failure.remedy
        )
    return exports.artifacts[request]
