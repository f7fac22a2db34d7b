"""How sets of processes are stored: in the side table `replica_runs`, a row for each process."""

from collections.abc import Iterator, Mapping

from fleetrank.analysis.stored.side.replica_runs import OF_SETS, REPLICA_RUNS
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.replica_set import ReplicaRun, ReplicaSet
from fleetrank.orchestrator.identity.keys import (
    cell_of_side_key,
    n_replicas_of,
    replicated_key,
)
from fleetrank.orchestrator.rows.measured_columns import Row
from fleetrank.orchestrator.store.side_sink import SideForm, shared_columns


def set_rows(row: Row, measurement: Measurement) -> Iterator[Mapping[str, object]]:
    """The rows of one attempt; one row if no process has started."""
    key, found = str(row["cell_key"]), measurement.replicas
    shared = {
        **shared_columns(row, OF_SETS),
        "cell_key": cell_of_side_key(key),
        "set_id": f"{row['sweep_id']}/{key}/{row['repeat']}/{row['attempt']}",
        "n_replicas": n_replicas_of(key),
    }
    if found is None or not found.runs:
        yield shared
        return
    shared["run_s"] = found.run_s
    if found.core_use is not None:
        shared["core_use"] = found.core_use.value
    for number, run in enumerate(found.runs):
        yield {**shared, **(_of_device(found) if number == 0 else {}), **_of_process(run)}


def _of_device(found: ReplicaSet) -> dict[str, object]:
    if found.energy is None:
        return {}
    return {
        "device_energy_mj": found.energy.mj,
        "device_energy_ns": found.energy.window_ns,
        "energy_method": found.energy.method.value,
    }


def _of_process(run: ReplicaRun) -> dict[str, object]:
    is_measured = run.start_ns is not None
    return {
        "replica": run.replica,
        "given_cpus": _listed(run.given_cpus),
        "cpus": _listed(run.cpus),
        "start_ns": run.start_ns,
        "end_ns": run.end_ns,
        "inferences": len(run.samples_ns) if is_measured else None,
        "samples_ns": list(run.samples_ns) if is_measured else None,
        "run_peak_memory_bytes": run.run_peak_memory_bytes,
        "process_memory_bytes": run.process_memory_bytes,
        "involuntary_switches": run.involuntary_switches,
        "replica_error_kind": None if run.error_kind is None else run.error_kind.value,
        "replica_error_message": run.error_message,
        "flags": [flag.value for flag in run.flags],
    }


def _listed(cpus: tuple[int, ...] | None) -> list[int] | None:
    return None if cpus is None else list(cpus)


REPLICA_FORM = SideForm(
    table=REPLICA_RUNS,
    rows_of=set_rows,
    cell_columns=("cell_key", "n_replicas"),
    task_key=lambda row: replicated_key(str(row["cell_key"]), int(str(row["n_replicas"]))),
)
