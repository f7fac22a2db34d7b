"""Assignment and retry over random orders of events: what may never happen, never does."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import ErrorKind, Family, Format, Runtime
from fleetrank.models.cards.card import ExportRequest, ModelCard, Source, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.orchestrator.dispatch.decide.assign import next_assignments
from fleetrank.orchestrator.dispatch.decide.retry import (
    RetryRules,
    condemns_cell,
    delay_s,
    finished,
    probed,
)
from fleetrank.orchestrator.dispatch.decide.state import (
    DispatchState,
    Lane,
    Waiting,
    next_moment_s,
    started,
    stopping,
    with_lane,
    without,
)
from fleetrank.orchestrator.identity.cells import Attempt, Cell, Repeat

RULES = RetryRules(max_attempts=3)
CARD = ModelCard(name="m", family=Family.HYBRID, source=Source.TIMM, entry="m")


def attempt(device: str, index: int) -> Attempt:
    """Repeats in turn of two cells per device."""
    cell = Cell(
        cell_key=f"{device}/{index % 2}",
        platform_key=device,
        device=device,
        export=ExportRequest(model=resolve(CARD), weights=Weights(), format=Format.ONNX),
        execution=Execution(runtime=Runtime.ONNX, backend="cpu"),
    )
    return Attempt(repeat=Repeat(cell=cell, index=index), number=0)


def failure(kind: ErrorKind, *, is_transient: bool) -> Failure:
    return Failure(kind=kind, message="m", remedy="r", is_transient=is_transient)


LOST = failure(ErrorKind.DEVICE_LOST, is_transient=True)
BAD_FILE = failure(ErrorKind.BAD_ARTIFACT, is_transient=False)
HOST_LOST = failure(ErrorKind.HOST_LOST, is_transient=True)
TIMED_OUT = failure(ErrorKind.TIMED_OUT, is_transient=False)
CRASHED = failure(ErrorKind.CRASHED, is_transient=False)
OUTCOMES = (None, None, None, LOST, BAD_FILE, TIMED_OUT, CRASHED)


@dataclass
class World:
    """What a controller would hold around the pure functions."""

    state: DispatchState
    left: dict[str, int]
    now_s: float = 0.0
    tries: Counter[tuple[str, int]] = field(default_factory=Counter)
    ended: Counter[tuple[str, int]] = field(default_factory=Counter)
    condemned: set[str] = field(default_factory=set)
    n_hosts_lost: int = 0

    def refill(self, device: str) -> None:
        lane = self.state.lanes[device]
        while lane.fresh is None and self.left[device]:
            self.left[device] -= 1
            fresh = attempt(device, self.left[device])
            if fresh.repeat.cell.cell_key not in self.condemned:
                lane = replace(lane, fresh=fresh)
                self.state = with_lane(self.state, lane)

    def condemn(self, device: str, index: int, n_repeats: int) -> None:
        """Ends at once what is left of a cell."""
        cell_key = attempt(device, index).repeat.cell.cell_key
        self.condemned.add(cell_key)
        self.state = without(self.state, device, lambda repeat: repeat.cell.cell_key == cell_key)
        for other in range(index % 2, n_repeats, 2):
            if not self.ended[(device, other)]:
                self.ended[(device, other)] += 1
        self.refill(device)
        self.check()

    def assign(self) -> int:
        assignments = next_assignments(self.state, self.now_s)
        for chosen in assignments:
            assert chosen.attempt.repeat.cell.cell_key not in self.condemned
            assert self.state.lanes[chosen.device].running is None
            self.state = started(self.state, chosen.device, chosen.attempt)
            self.tries[(chosen.device, chosen.attempt.repeat.index)] += 1
            self.refill(chosen.device)
        self.check()
        return len(assignments)

    def finish(self, device: str, outcome: Failure | None) -> None:
        running = self.state.lanes[device].running
        assert running is not None
        if outcome is HOST_LOST:
            # Its host's fault: no try of the repeat is used up.
            self.tries[(device, running.repeat.index)] -= 1
        self.state, will_retry = finished(
            self.state, device, outcome, rules=RULES, now_s=self.now_s, jitter=0.5
        )
        if not will_retry:
            self.ended[(device, running.repeat.index)] += 1
        self.check()

    def lose_host(self, host: str) -> None:
        """Everything under way on a host comes back at once."""
        for lane in list(self.state.lanes.values()):
            if lane.host == host and lane.running is not None:
                self.finish(lane.device, HOST_LOST)
        for lane in self.state.lanes.values():
            is_aside = lane.host != host or lane.probe_at_s is not None or lane.is_given_up
            assert is_aside, "a device of a lost host is still in service"

    def probe(self, device: str, *, is_well: bool) -> None:
        answer = None if is_well else LOST
        self.state = probed(self.state, device, answer, rules=RULES, now_s=self.now_s)

    def check(self) -> None:
        for host in {lane.host for lane in self.state.lanes.values()}:
            busy = [
                x for x in self.state.lanes.values() if x.host == host and x.running is not None
            ]
            assert len(busy) <= 1 or not any(lane.needs_quiet for lane in busy)
        assert all(n <= RULES.max_attempts for n in self.tries.values())
        assert all(n == 1 for n in self.ended.values())

    def wait(self) -> None:
        moment_s = next_moment_s(self.state.lanes.values(), self.now_s)
        assert moment_s is not None, "work is left, but nothing will ever happen"
        self.now_s = moment_s


lanes_strategy = st.lists(
    st.tuples(st.sampled_from(["h1", "h2"]), st.booleans(), st.integers(0, 4)),
    min_size=1,
    max_size=5,
)


def new_world(lanes: list[tuple[str, bool, int]]) -> World:
    names = [f"d{number}" for number in range(len(lanes))]
    state = DispatchState(
        lanes={
            name: Lane(device=name, host=host, needs_quiet=needs_quiet)
            for name, (host, needs_quiet, _) in zip(names, lanes, strict=True)
        }
    )
    left = {name: n for name, (_, _, n) in zip(names, lanes, strict=True)}
    world = World(state, dict(left))
    for name in names:
        world.refill(name)
    return world


@given(lanes_strategy, st.data())
def test_every_repeat_ends_once_in_whatever_order_things_happen(
    lanes: list[tuple[str, bool, int]], data: st.DataObject
) -> None:
    world = new_world(lanes)
    for _step in range(2000):
        if world.state.is_over:
            break
        for lane in world.state.lanes.values():
            if lane.probe_at_s is not None and lane.probe_at_s <= world.now_s:
                world.probe(lane.device, is_well=data.draw(st.booleans()))
        n_assigned = world.assign()
        running = [lane.device for lane in world.state.lanes.values() if lane.running is not None]
        hosts = {world.state.lanes[device].host for device in running}
        if running and world.n_hosts_lost < 3 and data.draw(st.integers(0, 9)) == 0:
            world.n_hosts_lost += 1
            world.lose_host(data.draw(st.sampled_from(sorted(hosts))))
        elif running:
            # One of those that run comes back, so that slow and fast devices interleave.
            device, outcome = (data.draw(st.sampled_from(x)) for x in (running, OUTCOMES))
            attempt_ = world.state.lanes[device].running
            assert attempt_ is not None
            world.finish(device, outcome)
            if outcome and condemns_cell(outcome.kind, is_transient=outcome.is_transient):
                n_repeats = lanes[list(world.left).index(device)][2]
                world.condemn(device, attempt_.repeat.index, n_repeats)
        elif not n_assigned and not world.state.is_over:
            world.wait()
    assert world.state.is_over
    for name, (_, _, n) in zip(world.left, lanes, strict=True):
        is_given_up = world.state.lanes[name].is_given_up
        n_ended = sum(n for (device, _), n in world.ended.items() if device == name)
        assert n_ended == n or is_given_up


@given(lanes_strategy, st.integers(0, 10))
def test_nothing_starts_after_a_stop_and_what_runs_still_ends(
    lanes: list[tuple[str, bool, int]], n_before: int
) -> None:
    world = new_world(lanes)
    for _ in range(n_before):
        world.assign()
        for lane in world.state.lanes.values():
            if lane.running is not None:
                world.finish(lane.device, None)
                break
    world.assign()
    world.state = stopping(world.state)
    assert world.assign() == 0
    for lane in world.state.lanes.values():
        if lane.running is not None:
            world.finish(lane.device, LOST)
    assert world.assign() == 0
    assert world.state.is_over


@given(lanes_strategy, st.data())
def test_whoever_has_work_is_served_before_anybody_else_of_its_host_is_served_three_times(
    lanes: list[tuple[str, bool, int]], data: st.DataObject
) -> None:
    world = new_world(lanes)
    served: dict[str, Counter[str]] = {name: Counter() for name in world.left}
    for _step in range(200):
        for chosen in next_assignments(world.state, world.now_s):
            host = world.state.lanes[chosen.device].host
            for waiting in world.state.lanes.values():
                if waiting.host == host and waiting.fresh is not None and waiting.running is None:
                    served[waiting.device][chosen.device] += 1
            served[chosen.device].clear()
            world.state = started(world.state, chosen.device, chosen.attempt)
            world.refill(chosen.device)
        assert all(n <= 2 for counter in served.values() for n in counter.values())
        running = [lane.device for lane in world.state.lanes.values() if lane.running is not None]
        if not running:
            break
        world.finish(data.draw(st.sampled_from(running)), None)
    assert world.state.is_over


def test_devices_of_a_lost_host_wait_for_it_and_no_try_is_used_up() -> None:
    world = new_world([("h1", False, 1), ("h1", False, 1), ("h2", False, 1)])
    assert world.assign() == 3
    world.lose_host("h1")
    assert world.state.lanes["d2"].running is not None
    world.now_s = RULES.host_wait_s - 1
    assert world.assign() == 0, "set aside until they answer"
    world.state = probed(world.state, "d0", HOST_LOST, rules=RULES, now_s=world.now_s)
    world.probe("d1", is_well=True)
    assert [chosen.device for chosen in next_assignments(world.state, world.now_s)] == ["d1"]
    world.now_s = RULES.host_wait_s + 1
    world.state = probed(world.state, "d0", HOST_LOST, rules=RULES, now_s=world.now_s)
    assert world.state.lanes["d0"].is_given_up


def test_a_device_whose_host_is_not_there_yet_is_waited_for_longer_than_a_silent_one() -> None:
    world = new_world([("h1", False, 1)])
    for _ in range(RULES.max_probes + 3):
        world.state = probed(world.state, "d0", HOST_LOST, rules=RULES, now_s=world.now_s)
        world.now_s += 1
    assert not world.state.lanes["d0"].is_given_up


def test_phones_do_not_starve_a_device_that_needs_quiet() -> None:
    world = new_world([("h1", False, 4), ("h1", False, 4), ("h1", True, 1)])
    world.assign()
    world.finish("d0", None)
    # d2 was never served and is next: d0 may not start again beside the still running d1.
    assert world.assign() == 0
    world.finish("d1", None)
    assert [chosen.device for chosen in next_assignments(world.state, 0.0)] == ["d2"]


def test_phones_of_one_host_run_side_by_side_and_a_cpu_alone() -> None:
    phones = new_world([("h1", False, 1), ("h1", False, 1)])
    cpus = new_world([("h1", True, 1), ("h1", True, 1)])
    assert (phones.assign(), cpus.assign()) == (2, 1)


def test_a_ready_retry_goes_before_new_work_and_an_unready_one_waits() -> None:
    lane = Lane(
        device="d",
        host="h",
        needs_quiet=True,
        fresh=attempt("d", 1),
        retries=(Waiting(attempt=attempt("d", 0), ready_s=5.0),),
    )
    assert lane.next_ready(4.9) == attempt("d", 1)
    assert lane.next_ready(5.0) == attempt("d", 0)


def test_a_retry_that_is_due_but_blocked_does_not_make_the_loop_spin() -> None:
    lane = Lane(
        device="d",
        host="h",
        needs_quiet=True,
        retries=(Waiting(attempt=attempt("d", 0), ready_s=5.0),),
    )
    assert next_moment_s([lane], 4.0) == 5.0
    assert next_moment_s([lane], 5.0) is None


def test_back_off_doubles_spreads_and_is_bounded() -> None:
    assert [delay_s(RULES, n, 0.5) for n in range(4)] == [0.5, 1.0, 2.0, 4.0]
    assert delay_s(RULES, 0, 0.0) == pytest.approx(0.25)
    assert delay_s(RULES, 10_000, 0.999) <= 1.5 * RULES.max_delay_s


def test_three_failures_in_a_row_set_a_device_aside_and_an_answer_brings_it_back() -> None:
    world = new_world([("h1", True, 5)])
    for _ in range(3):
        assert world.assign() == 1
        world.finish("d0", TIMED_OUT)
    assert world.assign() == 0
    assert not world.state.is_over
    world.probe("d0", is_well=True)
    assert world.assign() == 1
    world.finish("d0", TIMED_OUT)
    assert world.assign() == 0, "one more failure after coming back is enough"


def test_only_failures_that_every_repeat_would_meet_condemn_a_cell() -> None:
    condemning = {kind for kind in ErrorKind if condemns_cell(kind, is_transient=False)}
    assert condemning == {
        ErrorKind.BAD_ARTIFACT,
        ErrorKind.UNSUPPORTED,
        ErrorKind.OUT_OF_MEMORY,
        ErrorKind.TIMED_OUT,
    }
    assert not any(condemns_cell(kind, is_transient=True) for kind in ErrorKind)


def test_bad_files_are_not_held_against_the_device() -> None:
    world = new_world([("h1", True, 5)])
    for _ in range(5):
        assert world.assign() == 1
        world.finish("d0", BAD_FILE)
    assert world.state.is_over


def test_a_device_that_never_answers_is_given_up_and_the_sweep_ends() -> None:
    world = new_world([("h1", True, 9)])
    for _ in range(3):
        world.assign()
        world.finish("d0", TIMED_OUT)
    for _ in range(RULES.max_probes):
        assert not world.state.is_over
        world.probe("d0", is_well=False)
    assert world.state.is_over
