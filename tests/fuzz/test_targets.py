"""What was found once is read or refused for good; each target takes a few inputs of each form."""

from pathlib import Path

import pytest
from campaign import TARGETS
from counts import FOUND
from hypothesis import HealthCheck, given, settings
from target import QUICK_SHARE, judge, warm_up

SHARE = 0.06
"""Of the examples that a test of hypothesis takes; `make fuzz` gives thousands."""
QUICK = 0.4
"""Of a target that is quick."""
CASES = sorted(FOUND.glob("*/*.bin"))


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
@pytest.mark.parametrize("name", TARGETS)
def test_a_few_inputs_are_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    warm_up(target)
    share = QUICK if target.share == QUICK_SHARE else SHARE
    n_examples = max(3, round(share * settings().max_examples))

    @settings(max_examples=n_examples, database=None, suppress_health_check=list(HealthCheck))
    @given(target.inputs)
    def check(data: bytes) -> None:
        judge(target, data)

    check()


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_case_is_read_or_refused(path: Path) -> None:
    target = TARGETS[path.parent.name]
    warm_up(target)
    judge(target, path.read_bytes())


def test_every_recorded_case_has_a_target() -> None:
    assert {path.parent.name for path in CASES} <= set(TARGETS)
