"""Makes the columns of a measurement with the new field."""

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.foundation.vocabulary import Origin, Status
from fleetrank.orchestrator.rows import measured_columns

seen = Measurement(task_id="t", status=Status.OK, origin=Origin.MEASURED, fan_rpm=1200)
assert measured_columns(seen)["fan_rpm"] == 1200
