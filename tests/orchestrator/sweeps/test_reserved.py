"""A sweep of a device that a lab gives by turns: it waits, gives back, and loses nothing."""

import json
import signal
from pathlib import Path

import pytest
from small_lab import SmallLab
from waiting import ended, start, wait_for_repeats, wait_until

pytestmark = pytest.mark.slow

DEVICE = """name: sim-a
kind: simulated
options: {{duration_s: {duration_s}, crash_rate: {crash_rate}}}
reserve:
  command: {command}
  renew: {renew}
  release: {release}
  every_s: 0.2
  limit_s: {limit_s}
"""


@pytest.fixture
def lab(tmp_path: Path) -> SmallLab:
    (tmp_path / "lab").mkdir()
    return SmallLab(tmp_path / "lab", lapses_s=30.0)


def add_device(folder, lab: SmallLab, **changes: float | str) -> None:
    words = {name: json.dumps(lab.words(call)) for name, call in SmallLab.CALLS.items()}
    fields = {"duration_s": 0.1, "crash_rate": 0.0, "limit_s": 60.0} | words | changes
    (folder.root / "devices/sim-a.yaml").write_text(DEVICE.format(**fields))


def waits(folder) -> dict[str, str | None]:
    """Why each device waits, as `sweep status` says."""
    status = json.loads(folder.call("sweep", "status", "--json").stdout)
    return {one["device"]: one["waits"] for one in status["devices"]}


def test_a_device_that_another_user_has_is_waited_for_and_given_back(folder, lab) -> None:
    add_device(folder, lab)
    folder.write_spec(["m0", "m1"], ["sim-a"], repeats=1)
    lab.give_to("ann")
    process = start(folder, "--inline")
    wait_for_repeats(process, 1, "DeviceWaits")
    wait_until(lambda: "used by ann" in (waits(folder)["sim-a"] or ""), "the reason in the status")
    lab.free()
    code, error = ended(process)
    assert code == 0, error
    assert [row["status"] for row in folder.rows()] == ["ok", "ok"]
    assert {row["device_model"] for row in folder.rows()} == {"simulated"}, "its facts are known"
    assert lab.user is None
    # Between two repeats it is not given back.
    assert [call for call in lab.calls if call != "renew"][-2:] == ["reserve", "release"]


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_ended_gives_it_back(folder, lab, number: int) -> None:
    """A process, because another one must release what a killed one reserved."""
    add_device(folder, lab, duration_s=60.0)
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    process = start(folder, "--inline")
    wait_for_repeats(process, 1, "RepeatStarted")
    assert lab.user == "me"
    process.send_signal(number)
    ended(process)
    wait_until(lambda: lab.user is None, "the place to be free")
    assert lab.calls[-1] == "release"


def test_a_command_for_one_device_reserves_it_too(folder, lab) -> None:
    add_device(folder, lab)
    lab.give_to("ann")
    refused = folder.call("devices", "check", "sim-a")
    assert refused.returncode != 0
    assert "used by ann" in refused.stderr
    lab.free()
    assert folder.call("devices", "check", "sim-a").returncode == 0
    assert lab.calls == ["reserve", "reserve", "release"]
