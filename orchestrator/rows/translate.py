"""Turns a measurement into a row of the table."""

from fleetrank.analysis.stored.columns import SCHEMA, SCHEMA_VERSION
from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.foundation.vocabulary import Flag
from fleetrank.models.cards.card import Artifact
from fleetrank.orchestrator.identity.cells import Attempt, DevicePlace, SweepFacts
from fleetrank.orchestrator.rows.known_columns import (
    device_columns,
    model_columns,
    platform_columns,
    storable,
)
from fleetrank.orchestrator.rows.measured_columns import (
    Row,
    condition_columns,
    measured_columns,
)

_NOTHING_KNOWN: Row = dict.fromkeys(SCHEMA)


def make_row(
    *,
    sweep: SweepFacts,
    attempt: Attempt,
    measurement: Measurement,
    place: DevicePlace,
    facts: DeviceFacts | None,
    artifact: Artifact | None,
) -> Row:
    """Makes the complete row of one attempt; unknown values are `None`.

    Args:
        sweep: the facts that all rows of the sweep share.
        attempt: the attempt; the row has the key of its cell.
        measurement: the result of the attempt.
        place: the device that measured it; it may have taken the cell over from another device.
        facts: facts of the device; `None` if it could not be probed.
        artifact: the artifact; `None` if the export failed.
    """
    cell = attempt.repeat.cell
    measured: Row = {
        "sweep_id": sweep.sweep_id,
        "cell_key": cell.cell_key,
        "repeat": attempt.repeat.index,
        "attempt": attempt.number,
        "schema_version": SCHEMA_VERSION,
        "fleetrank_version": sweep.fleetrank_version,
        "git_commit": sweep.git_commit,
        "seed": sweep.seed,
        "device": cell.device,
        "taken_over_by": attempt.taker,
        "host": place.host_hash,
        "platform_key": cell.platform_key,
        **measured_columns(measurement),
        **condition_columns(measurement, facts),
    }
    if attempt.taker is not None:
        measured["flags"] = [*(flag.value for flag in measurement.flags), Flag.TAKEN_OVER.value]
    return {
        **_NOTHING_KNOWN,
        **model_columns(cell.export, artifact),
        **platform_columns(cell.execution),
        **device_columns(facts),
        **storable(measured),
    }
