import gc

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.timed_sequences import (
    sequence_policy,
    time_sequences,
    warm_up_sequences,
)

STEPS = 4


class Decoder:
    """Runs take a stated time on its own clock; `between_ns` passes between them, untimed."""

    def __init__(self, prompt_ns: int = 1_000, step_ns: int = 100, between_ns: int = 0) -> None:
        self.prompt_ns, self.step_ns, self.between_ns = prompt_ns, step_ns, between_ns
        self.now = 0
        self.made: list[str] = []

    def clock(self) -> int:
        return self.now

    def run(self) -> None:
        self.now += self.prompt_ns
        self.made.append("prompt")
        self.place = 0

    def step(self) -> None:
        self.now += self.step_ns + 20 * self.place
        self.place += 1
        self.made.append("step")

    def before(self) -> None:
        self.now += self.between_ns

    def after(self) -> None:
        assert not gc.isenabled()


def timed(model: Decoder, **changes: object):
    fields: dict[str, object] = {"min_observed_s": 0.0, **changes}
    policy = sequence_policy(MeasurePolicy(**fields), STEPS)  # type: ignore[arg-type]
    return time_sequences(model, STEPS, model.clock, policy, model)


def test_each_prompt_is_followed_by_all_its_steps() -> None:
    model = Decoder()
    seen = timed(model, half_width=0.0, max_samples=8 * STEPS)
    assert model.made == ["prompt", *["step"] * STEPS] * 8
    assert seen.prompts_ns == (1_000,) * 8
    assert len(seen.steps_ns) == 8 * STEPS
    assert seen.steps_ns[:STEPS] == (100, 120, 140, 160)
    assert seen.stop_reason == "max_samples"


def test_medians_of_sequences_and_not_steps_decide_when_it_is_enough() -> None:
    # Each step is slower than the one before, and every sequence is equal.
    seen = timed(Decoder(), half_width=0.01)
    assert (seen.stop_reason, len(seen.prompts_ns)) == ("half_width", 6)
    assert set(seen.medians_ns) == {130}


def test_short_sequences_are_repeated_until_they_were_watched_long_enough() -> None:
    seen = timed(Decoder(), min_observed_s=1e-3)
    assert seen.stop_reason == "half_width"
    assert sum(seen.walls_ns) >= 1_000_000


def test_a_sequence_is_finished_when_time_is_over() -> None:
    seen = timed(Decoder(prompt_ns=10**9), max_time_s=0.5)
    assert (seen.stop_reason, len(seen.prompts_ns), len(seen.steps_ns)) == ("max_time", 1, STEPS)


def test_time_between_the_runs_is_overhead() -> None:
    assert not timed(Decoder()).has_overhead
    # Five pauses of 20 in a sequence of 1,520: 6.6 %.
    assert timed(Decoder(between_ns=20)).has_overhead
    assert not timed(Decoder(between_ns=10)).has_overhead


def test_the_warm_up_counts_sequences() -> None:
    model = Decoder()
    policy = sequence_policy(MeasurePolicy(min_warmup_s=0.0), STEPS)
    warm = warm_up_sequences(model, STEPS, model.clock, policy)
    assert (warm.runs, warm.is_stable) == (2, True)
    assert model.made.count("prompt") == 2
