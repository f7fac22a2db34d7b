"""The file of the canary model, exported when the cache has none."""

import sys

from fleetrank.device_agents.registry import HOST_CPU, create_agent
from fleetrank.foundation.lease import host_lease
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import Artifact
from fleetrank.models.networks.primer import canary_request
from fleetrank.orchestrator.dispatch.drive.stop_switch import StopSwitch
from fleetrank.orchestrator.errors import NothingToDoError
from fleetrank.orchestrator.export.export_stage import ExportTools, build_artifacts
from fleetrank.orchestrator.progress.line_output import PlainLines
from fleetrank.orchestrator.workspace.workspace import Workspace


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
    tools = ExportTools(
        cache=cache,
        infer=create_agent(HOST_CPU, {}).infer,
        emit=PlainLines(sys.stderr),
        switch=StopSwitch(),
    )
    with host_lease("the export of the canary model"):
        exports = build_artifacts([request], (), tools)
    if request in exports.failures:
        failure = exports.failures[request]
        raise NothingToDoError(
            f"the canary model is not available: {failure.message}", failure.remedy
        )
    return exports.artifacts[request]
