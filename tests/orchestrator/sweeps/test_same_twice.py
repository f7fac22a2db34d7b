"""Two sweeps of unchanged code, and one of a slower device, through the command."""

import json

import pytest
from wording import has

pytestmark = pytest.mark.slow

DEVICE = """name: sim-a
kind: simulated
options: {{noise: 0.01, overhead_us: 1000, seed: {seed}, peak_gflops: {speed}}}
"""


def measured(folder, *, seed: int, speed: float) -> str:
    """Measures all models on a device of this speed and returns the sweep."""
    (folder.root / "devices/sim-a.yaml").write_text(DEVICE.format(seed=seed, speed=speed))
    before = set(folder.store.sweep_ids())
    done = folder.call("sweep", "run", "t", "--inline")
    assert done.returncode == 0, done.stderr
    (new,) = set(folder.store.sweep_ids()) - before  # two sweeps of one second have no order
    return new


def test_unchanged_code_is_the_same_and_a_slower_device_is_slower(folder) -> None:
    folder.write_spec(("m0", "m1"), ["sim-a"], repeats=5)
    first = measured(folder, seed=1, speed=100)
    second = measured(folder, seed=2, speed=100)
    words = ("report", "compare", first, second, "--margin", "5%")
    # A change of 5 % would be a deviation of seven standard errors.
    done = folder.call(*words, "--require-same", "--require-power")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith("2 cells: 2 same within 5 %")
    assert has(done.stdout, "session")
    # At a margin far below the noise nothing can be shown to be the same, and the gate fails.
    done = folder.call(*words[:4], "--margin", "0.01%", "--json", "--require-same")
    assert done.returncode in {4, 5}
    answer = json.loads(done.stdout)
    assert (answer["cells"]["same"], sum(answer["cells"].values())) == (0, 2)
    slow = measured(folder, seed=3, speed=0.002 * 100)
    done = folder.call("report", "compare", second, slow, "--margin", "5%")
    assert done.returncode == 5, done.stdout
    assert "slower" in done.stdout
