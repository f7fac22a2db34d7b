"""What was found once is read or refused for good; each target takes a few inputs of each form.

`make fuzz` gives thousands, other ones each time, and keeps what crashes a target.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import adb_targets
import artifact_targets
import device_text_targets
import file_targets
import import_targets
import pytest
import screen_targets
import store_targets
from hypothesis import HealthCheck, given, settings
from target import QUICK_SHARE, Target, judge, limit_memory, warm_up

MODULES = (
    file_targets, store_targets, import_targets, artifact_targets, adb_targets,
    device_text_targets, screen_targets,
)  # fmt: skip
TARGETS: Mapping[str, Target] = {
    target.name: target for module in MODULES for target in module.TARGETS
}
INPUTS = int(os.environ.get("FUZZ_INPUTS", "0"))
"""Of each target in `make fuzz`; 0 in all other runs."""
SHARE = 0.06
"""Of the examples that a test of hypothesis takes."""
QUICK = 0.4
"""Of a target that is quick."""
FOUND = Path(__file__).with_name("found")
"""Recorded cases: one file an input, in a folder named like its target."""
CASES = sorted(FOUND.glob("*/*.bin"))


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
@pytest.mark.parametrize("name", TARGETS)
def test_inputs_are_read_or_refused(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    warm_up(target)
    share = QUICK if target.share == QUICK_SHARE else SHARE
    few = max(3, round(share * settings().max_examples))
    if INPUTS:
        limit_memory()
        few = max(few, round(target.share * INPUTS))
    last = tmp_path / f"{name}.bin"

    @settings(max_examples=few, database=None, derandomize=not INPUTS,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(target.inputs)
    def check(data: bytes) -> None:
        # Written before it is read: an input can end the process.
        last.write_bytes(data)
        judge(target, data)

    try:
        check()
    except Exception:
        data = last.read_bytes()  # hypothesis ends with the smallest
        if INPUTS:
            (FOUND / name).mkdir(exist_ok=True)
            (FOUND / name / f"{hashlib.sha256(data).hexdigest()[:12]}.bin").write_bytes(data)
        raise


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_case_is_read_or_refused(path: Path) -> None:
    target = TARGETS[path.parent.name]
    warm_up(target)
    judge(target, path.read_bytes())


def test_every_recorded_case_has_a_target() -> None:
    assert {path.parent.name for path in CASES} <= set(TARGETS)
