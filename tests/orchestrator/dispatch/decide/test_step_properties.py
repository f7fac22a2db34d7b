"""Random orders of events: what may never happen, never does, and every sweep ends."""

import zlib
from dataclasses import replace

import pytest
from dispatch_bench import new_work
from dispatch_world import HOST_LOST, NOT_FIT, World, failure, repeat_of
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fleetrank.analysis.stopping_rule import StoppingRule, SweepQuestion
from fleetrank.device_agents.contract.measurement import Failure, Wait
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide import messages
from fleetrank.orchestrator.dispatch.decide.lane import RepeatKey
from fleetrank.orchestrator.dispatch.decide.power import switching
from fleetrank.orchestrator.identity import HostRules, RoundRules

LOST = failure(ErrorKind.DEVICE_LOST, is_transient=True)
BAD_FILE = failure(ErrorKind.BAD_ARTIFACT, is_transient=False)
TIMED_OUT = failure(ErrorKind.TIMED_OUT, is_transient=False)
CRASHED = failure(ErrorKind.CRASHED, is_transient=False)
OUTCOMES = st.sampled_from((None, None, None, LOST, LOST, BAD_FILE, TIMED_OUT, CRASHED))
EXPORT_FAILED = failure(ErrorKind.EXPORT_FAILED, is_transient=False)
MANY = 3000
RULE = StoppingRule(question=SweepQuestion.ORDER, margin=0.05, first=3, most=20, budget_s=1e6)


def latency_of(key: RepeatKey) -> int:
    """Some models are apart, and some are equal."""
    return 1000 + 500 * (zlib.crc32(key[0].encode()) % 3) + zlib.crc32(str(key).encode()) % 50


class Sweep(RuleBasedStateMachine):
    """One sweep, its hosts and its drivers."""

    world: World

    @initialize(
        devices=st.lists(st.tuples(st.sampled_from("gh"), st.booleans()), min_size=1, max_size=4),
        n_models=st.integers(1, 4),
        has_rounds=st.booleans(),
        repeats=st.integers(1, 3),
        max_attempts=st.integers(1, 3),
        allows_takeover=st.booleans(),
        is_one_broken=st.booleans(),
        is_until_decided=st.booleans(),
        powered=st.lists(st.booleans(), min_size=4, max_size=4),
    )
    def plan(
        self,
        *,
        devices: list[tuple[str, bool]],
        n_models: int,
        has_rounds: bool,
        repeats: int,
        max_attempts: int,
        allows_takeover: bool,
        is_one_broken: bool,
        is_until_decided: bool,
        powered: list[bool],
    ) -> None:
        names = {f"d{number}": quiet for number, (_, quiet) in enumerate(devices)}
        work = new_work(
            names,
            n_models=n_models,
            repeats=repeats,
            max_attempts=max_attempts,
            broken={0: EXPORT_FAILED} if is_one_broken else {},
        )
        hosts = dict(zip(names, (host for host, _ in devices), strict=True))
        places = {
            name: replace(
                place,
                host=hosts[name],
                takes_turns=place.needs_quiet,
                has_power=has_power,
                # Of each host all that need no quiet are one board.
                ties=frozenset({name, (hosts[name], name if place.needs_quiet else None)}),
            )
            for (name, place), has_power in zip(work.places.items(), powered, strict=False)
        }
        plan = replace(
            work.plan,
            hosts=HostRules(wait_s=5.0, takeover=allows_takeover),
            rounds=RoundRules() if has_rounds else None,
        )
        if is_until_decided:
            plan = replace(
                plan, repeats=repeats + 4, until=replace(RULE, first=2, most=repeats + 4)
            )
        self.world = World(replace(work, places=places, plan=plan), latency_of=latency_of)
        self.world.begin()

    @rule(seconds=st.sampled_from((0.0, 0.1, 0.3, 1.0, 31.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.now_s += seconds
        self.world.feed(messages.Tick(now_s=self.world.now_s))
        self._no_host_with_work_is_idle()

    def _no_host_with_work_is_idle(self) -> None:
        """Unless all its devices wait: for a pause to end, a probe or a host."""
        state = self.world.state
        for host in "gh" if not state.is_stopping else "":
            lanes = [lane for lane in state.lanes.values() if lane.host == host]
            is_idle = not any(lane.running for lane in lanes)
            off = switching(state.lanes, state.units)
            ready = [one for one in lanes if one.device not in off]
            assert not (is_idle and any(one.next_ready(self.world.now_s) for one in ready))

    @precondition(lambda self: self.world.working)
    @rule(data=st.data(), outcome=OUTCOMES, is_told=st.booleans())
    def a_task_ends(self, data: st.DataObject, outcome: Failure | None, is_told: bool) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.world.working)))
        self.world.finish(task_id, outcome)
        if is_told:
            self.world.arrive([task_id])

    @precondition(lambda self: self.world.working)
    @rule(data=st.data(), limit_s=st.sampled_from((0.0, 20.0, 600.0)), is_told=st.booleans())
    def a_device_is_not_fit(self, data: st.DataObject, limit_s: float, is_told: bool) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.world.working)))
        wait = Wait(ask_again_s=data.draw(st.sampled_from((0.0, 2.0, 30.0))), limit_s=limit_s)
        self.world.ask_for_time(task_id, replace(NOT_FIT, wait=wait))
        if is_told:
            self.world.answer_not_fit([task_id])

    @precondition(lambda self: self.world.not_fit)
    @rule(data=st.data())
    def answers_of_devices_that_are_not_fit_arrive_some_again(self, data: st.DataObject) -> None:
        known = st.sampled_from(sorted(self.world.not_fit))
        self.world.answer_not_fit(data.draw(st.lists(known, unique=True)))

    @precondition(lambda self: self.world.kept)
    @rule(data=st.data())
    def results_arrive_some_of_them_again(self, data: st.DataObject) -> None:
        kept = st.sampled_from(sorted(self.world.kept))
        self.world.arrive(data.draw(st.lists(kept, unique=True)))

    @rule(host=st.sampled_from("gh"), does_host_go_on=st.booleans())
    def a_host_is_lost(self, host: str, does_host_go_on: bool) -> None:
        self.world.down.add(host)
        lost = [t for t, device in self.world.owed.items() if not self.world.is_up(device)]
        if not does_host_go_on:
            for task_id in [t for t in lost if t in self.world.working]:
                del self.world.working[task_id]
        self.world.fail(lost, HOST_LOST)

    @rule(host=st.sampled_from("gh"), do_devices_answer=st.booleans())
    def a_host_is_back(self, host: str, do_devices_answer: bool) -> None:
        self.world.down.discard(host)
        if do_devices_answer:
            self._wait_and_answer(None)

    @rule()
    def devices_that_are_set_aside_answer_nothing_for_long(self) -> None:
        for _ in range(8):
            self._wait_and_answer(LOST)

    def _wait_and_answer(self, why: Failure | None) -> None:
        world = self.world
        lanes = world.state.lanes.values()
        world.now_s = max([world.now_s, *(lane.probe_at_s or 0.0 for lane in lanes)]) + 1.0
        world.feed(messages.Tick(now_s=world.now_s))
        for device in sorted(world.probing):
            world.answer(device, why)
        world.now_s += 1.0
        world.feed(messages.Tick(now_s=world.now_s))

    @precondition(lambda self: self.world.working)
    @rule(data=st.data())
    def a_process_dies_with_its_task(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.world.working)))
        del self.world.working[task_id]
        if task_id in self.world.owed:
            self.world.fail([task_id], LOST)

    @precondition(lambda self: self.world.probing)
    @rule(data=st.data(), is_well=st.booleans())
    def a_probe_is_answered(self, data: st.DataObject, is_well: bool) -> None:
        device = data.draw(st.sampled_from(sorted(self.world.probing)))
        self.world.answer(device, None if is_well else LOST)

    @precondition(lambda self: self.world.switching)
    @rule(data=st.data(), error=st.sampled_from((None, None, "no relay")))
    def a_device_has_power_again(self, data: st.DataObject, error: str | None) -> None:
        device = data.draw(st.sampled_from(sorted(self.world.switching)))
        self.world.end_switch(device, error)

    @rule(chance=st.integers(0, 9))
    def the_disk_fills_or_has_room_again(self, chance: int) -> None:
        # Rarely: after it nothing new starts.
        self.world.is_full = chance == 0

    @rule(is_now=st.booleans(), chance=st.integers(0, 9))
    def the_user_stops(self, is_now: bool, chance: int) -> None:
        if chance == 0:
            self.world.feed(messages.StopPressed(now_s=self.world.now_s, is_now=is_now))

    @rule(is_clean=st.booleans(), chance=st.integers(0, 3))
    def the_driver_ends_and_another_goes_on(self, is_clean: bool, chance: int) -> None:
        if chance == 0:
            if is_clean:
                self.world.feed(messages.Ended(now_s=self.world.now_s))
            self.world.begin()

    @rule(host=st.sampled_from("gh"))
    def a_host_is_lost_for_a_moment_and_goes_on(self, host: str) -> None:
        self.a_host_is_lost(host, does_host_go_on=True)
        self.a_host_is_back(host, do_devices_answer=True)

    @invariant()
    def the_driver_waits_for_what_is_owed_and_for_nothing_else(self) -> None:
        state = self.world.state
        assert state.in_flight.keys() == self.world.owed.keys()
        assert {device for device, lane in state.lanes.items() if lane.running} == set(
            self.world.owed.values()
        )

    @invariant()
    def a_device_at_rest_is_not_asked_and_rests_no_longer_than_it_may(self) -> None:
        now_s = self.world.now_s
        for lane in self.world.state.lanes.values():
            rest = lane.rest
            if rest is None:
                continue
            assert rest.until_s <= rest.since_s + rest.limit_s
            if rest.until_s > now_s:
                assert lane.next_ready(now_s) == ()
                assert lane.next_moment_s(now_s) is not None or lane.is_given_up

    @invariant()
    def a_finished_repeat_is_not_pending(self) -> None:
        state = self.world.state
        for lane in state.lanes.values():
            pending = [waiting.attempt for waiting in lane.retries]
            for attempt in (*pending, *lane.fresh):
                key = attempt.repeat.cell.cell_key, attempt.repeat.index
                assert not state.tally.is_finished(key)
                assert attempt.number >= state.tally.next_attempt(key)

    def teardown(self) -> None:
        """Lets the sweep run to its end: hosts are back, and every device but d0 answers."""
        world = self.world
        world.down.clear()
        for _round in range(MANY):
            if world.state.is_over:
                break
            for device in sorted(world.probing):
                world.answer(device, LOST if device == "d0" else None)
            for device in sorted(world.switching):
                world.end_switch(device)
            world.feed(messages.Tick(now_s=world.now_s))
            world.answer_not_fit(sorted(world.not_fit.keys() & world.owed.keys()))
            for task_id in sorted(world.owed.keys() - world.kept.keys()):
                # A task that its host never got is run by it now.
                world.working[task_id] = world.owed[task_id]
                world.finish(task_id, None)
            world.arrive(sorted(world.kept))
            lanes = world.state.lanes.values()
            moments = [lane.next_moment_s(world.now_s) for lane in lanes]
            world.now_s = min((m for m in moments if m is not None), default=world.now_s + 0.25)
        assert world.state.is_over, "work is left, but nothing will ever happen"
        world.feed(messages.Ended(now_s=world.now_s))
        self._check_the_end()

    def _check_the_end(self) -> None:
        world = self.world
        stored = {row.key for row in world.written if row.failure is None}
        kept = {repeat_of(t) for t, found in world.kept.items() if found.failure is None}
        assert world.valid <= stored | kept, "a valid result is lost"
        if world.state.has_store_failed:
            return
        assert not world.pending
        assert not world.kept.keys() & world.delivered, "a decided result is not acknowledged"
        if world.state.is_stopping:
            return
        for cell in world.work.plan.cells:
            lane = world.state.lanes.get(cell.device)
            for index in range(world.work.plan.least_repeats):
                key = cell.cell_key, index
                has_ended = world.ends[key] == 1 or world.state.tally.is_finished(key)
                assert has_ended or (lane is not None and lane.is_given_up), "never tried"


@pytest.mark.slow
def test_every_repeat_ends_once_and_no_result_is_lost_in_whatever_order_things_happen() -> None:
    run_state_machine_as_test(
        Sweep,
        settings=settings(
            # Of `--unit`, fewer: its profile has ten examples instead of a hundred.
            max_examples=settings().max_examples * 3 // 2,
            stateful_step_count=50,
            deadline=None,
            phases=[Phase.generate],
        ),
    )
