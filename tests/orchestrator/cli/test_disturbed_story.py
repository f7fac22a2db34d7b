"""A user's four steps beside real busy loops: the answer stays, or says what it compares."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_onnx import save_tiny_onnx
from wording import has
from world import call_inside

from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.load import load_measurements

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
QUICK, SLOW = "quick.onnx", "slow.onnx"
HEIGHTS = {QUICK: 20_000, SLOW: 40_000}
"""About 5 and 10 ms: longer than a turn of the scheduler, so that loops reach the median."""
SHORT = ("--max-time", "0.5")


@contextlib.contextmanager
def busy_loops() -> Iterator[None]:
    """Two for each core."""
    words = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(words) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def test_a_busy_run_of_one_model_and_an_ab_never_show_a_wrong_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "cluster.yaml").touch()
    for name, height in HEIGHTS.items():
        save_tiny_onnx(tmp_path / name, height)

    def said(*words: str) -> str:
        done = call_inside(tmp_path, tmp_path, *words)
        assert done.returncode in {0, 5}, done.stderr
        return done.stdout

    def asked() -> dict[str, object]:
        names = sorted(path.stem for path in (tmp_path / "cards").iterdir())
        found = json.loads(said("faster", *names, "--json"))
        here = found["here"]
        # The faster one comes first; a wrong order may be shown, but not as a fact.
        assert here["model_a"].startswith("quick") or here["low"] <= 1, here
        return found

    said("run", QUICK, SLOW, *SHORT)
    first = asked()["here"]
    together = load_measurements(tmp_path / "results").collect()
    assert set(together["design"]) == {"rounds"}
    with busy_loops():
        busy = said("run", QUICK, *SHORT)
    assert has(busy, "noisy", "Other programs used the host", "--repeat-noisy")
    then = asked()
    # One sweep has both, and the one that was disturbed is named with its factor.
    assert then["here"]["ratio"] == first["ratio"]
    assert has(str(then["here"]["reason"]), "measured both together", "not used: quick", "of run")
    (sweep_id,) = re.findall(r"sweep resume (\S+)", busy)
    said("sweep", "resume", sweep_id, "--repeat-noisy", "--inline")
    rows = load_measurements(tmp_path / "results", sweep=sweep_id)
    assert rows.collect()["design"].to_list() == ["isolated"] * 10
    assert cell_values(rows)["n_repeats"].to_list() == [5]
    said("ab", QUICK, SLOW, "--rounds", "5", *SHORT)
    last = asked()["here"]
    assert last["platform_key"] == first["platform_key"]
    assert last["n_a"] == 5
    # They took turns in both sweeps: the steadier one counts.
    assert last["reason"] is None or has(str(last["reason"]), "measured both together", "not used")
