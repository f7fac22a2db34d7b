"""The columns of a row that are known before the measurement: model, platform, device.

Each value is made once and reused, because a sweep has many rows with few different values. Do not
change what these functions return.
"""

import functools
import math
from collections.abc import Mapping

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.models.cards.card import Artifact, Cost, ExportRequest, weights_id
from fleetrank.orchestrator.identity.keys import affinity_text, canonical_json

Columns = Mapping[str, object]

_ALWAYS_STORABLE = (type(None), int, bool, list)
_KEPT = 4096
"""Larger than the number of devices, exports or executions of a sweep; a few kB each."""


@functools.lru_cache(maxsize=_KEPT)
def model_columns(export: ExportRequest, artifact: Artifact | None) -> Columns:
    """Columns of a network and its artifact; `None` values if it has no artifact."""
    card, weights = export.card, export.weights
    cost = (
        artifact.cost if artifact else Cost(macs=card.macs, parameters=card.parameters, method=None)
    )
    columns: dict[str, object] = {
        "model": card.name,
        "family": card.family.value,
        "has_attention": card.has_attention,
        "card_sha256": export.model.sha256,
        "weights_kind": weights.kind.value,
        "weights_id": weights_id(card, weights),
        "input_size": card.input_size,
        "macs": cost.macs,
        "flops": cost.flops,
        "flops_method": cost.method.value if cost.method else None,
        "parameters": cost.parameters,
        "accuracy_top1": card.accuracy_top1,
        "accuracy_source": card.accuracy_source,
        "artifact_format": export.format.value,
    }
    if artifact is not None:
        columns |= {
            "artifact_sha256": artifact.sha256,
            "artifact_bytes": artifact.size_bytes,
            "artifact_max_relative_error": artifact.max_relative_error,
            "exporter_versions": canonical_json(dict(artifact.versions)),
        }
    return storable(columns)


@functools.lru_cache(maxsize=_KEPT)
def platform_columns(execution: Execution) -> Columns:
    """Columns of the execution, without the device."""
    return {
        "runtime": execution.runtime.value,
        "backend": execution.backend,
        "mode": execution.mode.value,
        "precision": execution.precision.value,
        "batch": execution.batch,
        "threads": execution.threads,
        "affinity": cpu_numbers(execution.affinity),
        "options": options_text(execution.options),
    }


@functools.lru_cache(maxsize=_KEPT)
def device_columns(facts: DeviceFacts | None) -> Columns:
    """Columns of the device; all null if it could not be probed."""
    if facts is None:
        return {}
    columns = {
        "device_model": facts.device_model,
        "tier": facts.tier.value,
        "os": facts.os,
        "arch": facts.arch,
        "cpu_model": facts.cpu_model,
        "logical_cores": facts.logical_cores,
        "physical_cores": facts.physical_cores,
        "memory_bytes": facts.memory_bytes,
        "is_virtual_machine": facts.is_virtual_machine,
        "device_facts": canonical_json(dict(facts.extra)) if facts.extra else None,
    }
    return storable(columns)


def cpu_numbers(cpus: tuple[int, ...] | None) -> str | None:
    """CPUs as the table stores them."""
    return None if cpus is None else affinity_text(cpus)


@functools.lru_cache(maxsize=_KEPT)
def options_text(options: Options) -> str:
    """Options as the table stores them: sorted JSON."""
    return canonical_json(dict(options))


def storable(columns: Columns) -> dict[str, object]:
    """Returns a value that JSON and Parquet can both hold; NaN and infinity become missing."""
    return {
        name: value if type(value) in _ALWAYS_STORABLE else _storable(value)
        for name, value in columns.items()
    }


def _storable(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isascii():
        # Half a surrogate pair, as in a device's damaged output, is not valid UTF-8.
        return value.encode("utf-8", "replace").decode()
    return value
