"""A host with another fleetrank is named before a sweep, and left out of it."""

import shutil
from pathlib import Path

import pytest
from cluster_driver import Case

import fleetrank.device_agents

pytestmark = pytest.mark.cluster


@pytest.mark.thorough
def test_a_host_with_other_code_is_left_out(case: Case) -> None:
    other = case.cluster.network.add("other")
    ours, theirs = (
        Path(fleetrank.device_agents.__path__[0]).resolve(),
        other.folder / "device_agents",
    )
    shutil.copytree(ours, theirs, ignore=shutil.ignore_patterns("__pycache__"))
    (theirs / "changed.py").touch()
    # In the same place, as on a host of its own: Ray hands the driver's import path to its workers.
    assert other.run(["mount", "--bind", str(theirs), str(ours)]).returncode == 0
    case.cluster.start(other)
    devices = ("sim-left", "sim-other")
    for device, host in zip(devices, ("left", "other"), strict=True):
        case.driver.add_device(device, host, 0.1)
    status = case.driver.run("doctor", "--cluster", "auto")
    assert "other is not used: " in status
    assert "fleetrank differs" in status
    assert "sim-other is attached to host other, which is not available" in status

    case.driver.write_spec(devices, repeats=1, wait_s=1.0)
    assert case.start().finish(90.0) == 3
    assert "other is not used" in case.sweep.output
    assert {row["device"] for row in case.driver.rows() if row["status"] == "ok"} == {"sim-left"}
    other.power_off()
