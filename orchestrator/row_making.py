"""Turns a measurement into a row of the table."""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from fleetrank.analysis.stored.columns import SCHEMA, SCHEMA_VERSION
from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import Execution, TokenCost
from fleetrank.foundation.inputs import axes_text
from fleetrank.foundation.workload import IMAGE
from fleetrank.models.cards.card import Artifact, Cost, ExportRequest, weights_id
from fleetrank.orchestrator.identity import Attempt, Cell, DevicePlace, SweepFacts
from fleetrank.orchestrator.keys import affinity_text, canonical_json
from fleetrank.orchestrator.rows import Row, condition_columns, measured_columns, options_text
from fleetrank.orchestrator.table_fit import why_misfit

Columns = Mapping[str, object]
_ALWAYS_STORABLE = (int, bool, list)
_OF_FACTS = (
    "device_model", "os", "arch", "cpu_model", "logical_cores", "physical_cores", "memory_bytes",
    "is_virtual_machine",
)  # fmt: skip
_KEPT = 4096
"""Larger than the number of exports and executions of a sweep; a few kB each."""


class RowMaker:
    """Makes the rows of one sweep; unknown values are `None`.

    Columns that are known before a measurement (of sweep, cell and device) are made and checked
    once, because a sweep has many rows with few different values.
    """

    def __init__(
        self,
        sweep: SweepFacts,
        cells: Iterable[Cell],
        places: Mapping[str, DevicePlace],
        artifacts: Mapping[ExportRequest, Artifact],
    ) -> None:
        """Takes what the rows share.

        Args:
            sweep: the facts that all rows of the sweep share.
            cells: those that rows are of.
            places: the devices by name.
            artifacts: the files by request; without one, the export failed.
        """
        self._places = places
        shared = {**asdict(sweep), "schema_version": SCHEMA_VERSION}
        self._of_sweep = {**dict.fromkeys(SCHEMA), **_fitting(shared)}
        self._of_cells = {
            one.cell_key: _cell_columns(
                one.export, one.execution, one.costs, artifacts.get(one.export)
            )
            for one in cells
        }
        self._of_devices: dict[str, tuple[DeviceFacts | None, Columns]] = {}

    def row(
        self, attempt: Attempt, measurement: Measurement, device: str, facts: DeviceFacts | None
    ) -> Row:
        """Makes the complete row of one attempt.

        Args:
            attempt: the attempt; the row has the key of its cell.
            measurement: the result of the attempt.
            device: that measured it; it may have taken the cell over from another device.
            facts: facts of the device; `None` if it could not be probed.

        Raises:
            ValueError: a value does not fit the table; a kind of device has returned what no device
                gives.
        """
        cell, place = attempt.repeat.cell, self._places[device]
        peaks = place.peaks.get(cell.execution.threads, (None, None))
        measured = {
            **_fields(cell, "cell_key", "device", "platform_key"),
            "repeat": attempt.repeat.index,
            "attempt": attempt.number,
            "taken_over_by": attempt.taker,
            "host": place.host_hash,
            # Measured peaks of so many threads; none where nothing was measured.
            "peak_gflops": peaks[0],
            "peak_gbps": peaks[1],
            **measured_columns(measurement),
            **condition_columns(measurement, facts),
            "flags": [flag.value for flag in attempt.flags(measurement.flags)],
        }
        return {
            **self._of_sweep,
            **self._of_cells[cell.cell_key],
            **self._device_columns(device, facts),
            **_fitting(measured),
        }

    def _device_columns(self, device: str, facts: DeviceFacts | None) -> Columns:
        """Columns of the device as it was last probed."""
        known, columns = self._of_devices.get(device, (None, {}))
        if known is not facts:
            columns = _fitting(_facts_columns(facts))
            self._of_devices[device] = facts, columns
        return columns


@functools.lru_cache(maxsize=_KEPT)
def _cell_columns(
    export: ExportRequest,
    execution: Execution,
    costs: tuple[TokenCost, ...],
    artifact: Artifact | None,
) -> Columns:
    """Columns that a cell has on every device; `None` as the artifact if it has no file."""
    return _fitting(
        {
            **_model_columns(export, artifact),
            **_platform_columns(execution),
            **_cost_columns(export, costs, artifact),
        }
    )


def _model_columns(export: ExportRequest, artifact: Artifact | None) -> Columns:
    """Columns of a network and its artifact; `None` values if it has no file."""
    card, weights = export.card, export.weights
    cost = (
        artifact.cost if artifact else Cost(macs=card.macs, parameters=card.parameters, method=None)
    )
    columns: dict[str, object] = {
        "model": card.name,
        "family": card.family.value,
        **_fields(card, "has_attention", "input_size", "accuracy_top1", "accuracy_source"),
        "card_sha256": export.model.sha256,
        "weights_kind": weights.kind.value,
        "weights_id": weights_id(card, weights),
        **_fields(cost, "macs", "flops", "parameters"),
        "flops_method": cost.method.value if cost.method else None,
        "vocabulary": None if card.language is None else card.language.vocabulary,
        "model_context_tokens": None if card.language is None else card.language.context,
        "artifact_format": export.format.value,
    }
    if artifact is not None and artifact.has_file:
        columns |= {
            "artifact_sha256": artifact.sha256,
            "artifact_bytes": artifact.size_bytes,
            "artifact_max_relative_error": artifact.max_relative_error,
            "artifact_snr_db": artifact.snr_db,
            "artifact_top1_agreement": artifact.top1_agreement,
            "recipe": export.recipe,
            **_fields(artifact, "border", "border_scales"),
            "exporter_versions": canonical_json(dict(artifact.versions)),
        }
    return columns


def _platform_columns(execution: Execution) -> Columns:
    """Columns of the execution, without the device."""
    return {
        "runtime": execution.runtime.value,
        **_fields(execution, "backend", "batch", "threads"),
        "mode": execution.mode.value,
        "precision": execution.precision.value,
        "cpu_choice": execution.cpu_choice and execution.cpu_choice.value,
        "affinity": affinity_text(execution.affinity),
        "options": options_text(execution.options),
        "axes": axes_text(execution.axes),
        **_workload_columns(execution),
    }


def _workload_columns(execution: Execution) -> Columns:
    """Columns of a workload with tokens; none for `image`, which is null in stored rows."""
    workload = execution.workload
    if workload == IMAGE:
        return {}
    return {
        "workload": str(workload),
        "prompt_tokens": workload.prompt_tokens,
        "context_tokens": workload.context_tokens,
        "generated_tokens": workload.generated,
        "tokens_per_inference": workload.tokens_per_sample(execution.batch),
    }


def _cost_columns(
    export: ExportRequest, costs: tuple[TokenCost, ...], artifact: Artifact | None
) -> Columns:
    """Bytes of one timed sample, which is a step where one run has a prompt and steps."""
    if not costs:
        return {}
    stored = costs[-1].weight_bytes
    if export.recipe is not None and artifact is not None and artifact.has_file:
        # Some recipes make integers of the tables, too.
        stored = min(stored, artifact.size_bytes)
    return {
        "weight_bytes": stored,
        "state_bytes": costs[-1].state_bytes,
        "bytes_moved": costs[-1].moved_bytes,
    }


def _facts_columns(facts: DeviceFacts | None) -> Columns:
    """Columns of the device; all null if it could not be probed."""
    if facts is None:
        return {}
    return {
        **_fields(facts, *_OF_FACTS),
        "tier": facts.tier.value,
        "device_facts": canonical_json(dict(facts.extra)) if facts.extra else None,
    }


def _fields(source: object, *names: str) -> dict[str, object]:
    """Columns that have the names of fields."""
    return {name: getattr(source, name) for name in names}


def _fitting(columns: Columns) -> Columns:
    """The known columns as JSON and Parquet can both hold them; NaN and infinity become missing.

    Raises:
        ValueError: a value does not fit the table.
    """
    found = {
        name: value if type(value) in _ALWAYS_STORABLE else _storable_value(value)
        for name, value in columns.items()
        if value is not None
    }
    if (why := why_misfit(found)) is not None:
        raise ValueError(why)
    return found


def _storable_value(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isascii():
        # Half a surrogate pair, as in a device's damaged output, is not valid UTF-8.
        return value.encode("utf-8", "replace").decode()
    return value
