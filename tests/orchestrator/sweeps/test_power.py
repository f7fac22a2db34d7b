"""A sweep of a device that is lost: it is switched off and on, twice, and then set aside."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEVICE = """name: sim-a
kind: simulated
options: {{loss_rate: 1.0}}
power: {{cycle: {cycle}}}
"""


def test_a_lost_device_is_switched_twice_and_the_sweep_ends(folder, tmp_path: Path) -> None:
    log = tmp_path / "log"
    cycle = json.dumps(["sh", "-c", f"echo switched >> {log}"])
    (folder.root / "devices/sim-a.yaml").write_text(DEVICE.format(cycle=cycle))
    folder.write_spec(["m0", "m1", "m2", "m3"], ["sim-a", "sim-b"], repeats=1)
    ended = folder.call("sweep", "run", "sweeps/t.yaml", "--inline", "--progress", "plain")
    assert ended.returncode == 3, ended.stderr
    assert log.read_text().split() == ["switched"] * 2
    status = json.loads(folder.call("sweep", "status", "--json").stdout)
    a, b = status["devices"]
    assert [len(one["power"]) for one in (a, b)] == [2, 0]
    assert all(text in ended.stdout for text in a["power"])
    assert a["power"][0] in folder.call("sweep", "status").stdout
    assert (b["n_ok"], b["n_failed"]) == (4, 0), "the other device went on"
