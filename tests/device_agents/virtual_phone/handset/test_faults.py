import random
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.virtual_phone.profile import (
    DEFAULT_PROFILES,
    RUNNER,
    Fault,
    draw_injections,
    find_profile,
    leave_fault,
    take_fault,
)


@given(
    seed=st.integers(),
    count=st.integers(0, 60),
    faults=st.lists(st.sampled_from(Fault), min_size=1, unique=True),
)
def test_every_fault_named_is_drawn_and_one_seed_gives_one_run(
    seed: int, count: int, faults: Sequence[Fault]
) -> None:
    first, second = (
        draw_injections(random.Random(seed), phones=3, count=count, span_s=9.0, faults=faults)
        for _ in range(2)
    )
    assert first == second
    assert {injection.fault for injection in first} == set(faults)
    assert len(first) == max(count, len(faults))
    assert all(0 <= injection.after_s <= 9 and injection.phone < 3 for injection in first)
    assert sorted(first, key=lambda injection: injection.after_s) == list(first)


def test_a_fault_of_a_runner_strikes_once(tmp_path: Path) -> None:
    assert take_fault(tmp_path) is None
    for fault in RUNNER:
        leave_fault(tmp_path, fault)
    assert {take_fault(tmp_path) for _ in RUNNER} == RUNNER
    assert take_fault(tmp_path) is None


def test_the_default_phones_can_all_take_part() -> None:
    for name in DEFAULT_PROFILES:
        profile = find_profile(name)
        assert profile.sdk >= 26
        assert "arm64-v8a" in profile.abilist
        assert "shell_v2" in profile.features
