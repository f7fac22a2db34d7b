"""The stop rule of the page decides as that of the worker, for the same times."""

import random
from typing import TYPE_CHECKING

import pytest

from fleetrank.device_agents.browser.assets import PAGE
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.timing import HalfWidthRule, time_runs, warm_up

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]
_NS = 10**6
_RUN = """async ([times, policy]) => {
  const { timeRuns, warmUp } = await import(URL.createObjectURL(
    new Blob([document.source], {type: "text/javascript"})));
  let now = 0, at = 0;
  const step = async () => { now += times[at % times.length]; at += 1; };
  const warm = await warmUp(step, () => now, policy);
  const timed = await timeRuns(step, () => now, policy, 1);
  return [warm.runs, warm.isStable, timed.samples.length, timed.reason];
}"""


def decided_here(times_ms: list[int], policy: MeasurePolicy) -> list[object]:
    now = at = 0

    def step() -> None:
        nonlocal now, at
        now += times_ms[at % len(times_ms)] * _NS
        at += 1

    warm = warm_up(step, lambda: now, policy)
    rule = HalfWidthRule(policy=policy)
    timed = time_runs(step, lambda: now, rule, max_time_s=policy.max_time_s)
    return [warm.runs, warm.is_stable, len(timed.samples_ns), timed.stop_reason]


def test_the_page_and_the_worker_stop_after_the_same_run(chromium: "Browser") -> None:
    page = chromium.new_page()
    page.evaluate("text => { document.source = text; }", (PAGE / "timing.js").read_text())
    rng = random.Random(1)
    seen = set()
    for number in range(30):
        spread = rng.choice((0, 1, 3, 30))
        times = [40 + rng.randint(-spread, spread) for _ in range(rng.choice((1, 7, 400)))]
        policy = MeasurePolicy(
            min_warmup_runs=rng.choice((1, 10)), min_warmup_s=rng.choice((0.0, 0.5)),
            max_warmup_s=rng.choice((0.3, 10.0)), min_runs=rng.choice((1, 20, 100)),
            min_observed_s=rng.choice((0.0, 5.0)), half_width=rng.choice((0.001, 0.01, 0.2)),
            max_time_s=rng.choice((2.0, 40.0)), max_samples=rng.choice((60, 500)),
        )  # fmt: skip
        fields = {name: getattr(policy, name) for name in policy.__dataclass_fields__}
        wanted = decided_here(times, policy)
        assert page.evaluate(_RUN, [times, fields]) == wanted, (number, times, policy)
        seen.add(wanted[-1])
    assert seen == {"half_width", "max_time", "max_samples"}
