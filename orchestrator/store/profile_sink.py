"""How profiles are stored: in the side table `component_times`, a row for each kernel."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from fleetrank.analysis.stored.side.component_times import COMPONENT_TIMES
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.orchestrator.identity.keys import cell_of_side_key, profiled_key
from fleetrank.orchestrator.rows.measured_columns import Row
from fleetrank.orchestrator.store.side_sink import SideForm, shared_columns


def profile_rows(row: Row, measurement: Measurement) -> Iterator[Mapping[str, object]]:
    """The rows of one attempt; one row if it failed."""
    shared, profile = shared_columns(row), measurement.profile
    shared["cell_key"] = cell_of_side_key(str(row["cell_key"]))
    if profile is None:
        yield shared
        return
    for kernel in profile.kernels:
        yield {**shared, "runs": profile.runs, "run_ns": profile.run_ns, **asdict(kernel)}


PROFILE_FORM = SideForm(
    table=COMPONENT_TIMES,
    rows_of=profile_rows,
    cell_columns=("cell_key",),
    task_key=lambda row: profiled_key(str(row["cell_key"])),
)
