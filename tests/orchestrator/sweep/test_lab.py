"""The state of each device now: registered, in use, waiting or away."""

from pathlib import Path

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.proof import proof_of
from fleetrank.foundation.vocabulary import Origin, Status
from fleetrank.orchestrator.lab import lab_states
from fleetrank.orchestrator.progress_events import DeviceWaits, RepeatStarted, SweepFinished
from fleetrank.orchestrator.progress_file import ProgressFile
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, Registration, save_device
from fleetrank.orchestrator.workspace.workspace import Workspace

SWEEP = "s-20260101T000000-aa"


def waits(device: str, reason: str, limit_s: float | None, **changes: bool) -> DeviceWaits:
    return DeviceWaits(device=device, host="h", reason=reason, waited_s=0.0, ask_again_s=1.0,
                       limit_s=limit_s, **changes)  # fmt: skip


def test_a_device_is_in_use_while_its_sweep_runs_and_stays_away_after_it(
    tmp_path: Path, caplog
) -> None:
    workspace = Workspace(tmp_path)
    workspace.devices.mkdir()
    registered = Registration(canary_latency_ns=(3_000_000, 5_000_000))
    seen = Measurement(task_id="t", status=Status.OK, origin=Origin.MEASURED)
    proof = proof_of([(10**6, 10**6)] * 5, seen, None, "the device gives none")
    save_device(
        workspace,
        DeviceFile(name="a", kind="simulated", registration=registered, proof=proof),
    )
    said = lab_states(workspace)["a"]
    assert said.pop("proof") == "1.00 (1.00 to 1.00)"
    assert said == {"state": "registered", "canary_registered_ms": 4.0}
    store = ResultStore(workspace.results)
    store.create_sweep(SweepRecord(sweep_id=SWEEP))
    write = ProgressFile(store.progress_path(SWEEP))
    write(RepeatStarted(device="a", host="h", label="m", repeat=0, attempt=0))
    write(waits("b", "used by ann", 60.0))
    write(waits("c", "gone", None, is_left_out=True))
    write(SweepFinished(sweep_id=SWEEP, n_ok=0, n_failed=0, n_left=1, seconds=1.0,
                        is_interrupted=False))  # fmt: skip
    with store.lease(SWEEP):
        found = lab_states(workspace)
    assert (found["a"]["state"], found["a"]["why"]) == ("in use", f"sweep {SWEEP}")
    assert found["b"] == {"state": "waiting", "why": "used by ann"}
    assert found["c"] == {"state": "away", "why": "gone"}
    after = lab_states(workspace)
    assert (after["a"]["state"], after["c"]["state"], "b" in after) == ("registered", "away", False)
    (workspace.devices / "a.yaml").write_text("name: [")
    assert lab_states(workspace).keys() == {"c"}
    assert "a.yaml" in caplog.text
