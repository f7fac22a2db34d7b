"""A phone of a lab: its server is behind a network, and other hosts measure on it, too."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from adb_bench import (
    ENDLESS,
    AdbBench,
    NewAgent,
    assert_good,
    failure_of,
    make_task,
    measure_patiently,
    wait_until_it_runs,
)
from bad_network import BadNetwork
from phone_farm.faults import Fault
from waiting import wait_until

from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.state import waits
from fleetrank.device_agents.android.state.phone_lock import PhoneLock
from fleetrank.device_agents.errors import NotFitError, TransientError
from fleetrank.device_agents.hold import LostHoldError, held

pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]

LOCKS = "data/local/tmp/fleetrank/lock"


def lock_of(phone: Phone, name: str, **changes: object) -> PhoneLock:
    """The lock as another host sees it."""
    return replace(PhoneLock(phone=phone, me=name[0] * 32, who=f"{name}@bench"), **changes)


def test_hosts_take_turns_and_a_dead_one_loses_its_turn(bench: AdbBench) -> None:
    ann, bob = (lock_of(bench.phone, name) for name in ("ann", "bob"))
    ann.take()
    with pytest.raises(NotFitError, match="ann@bench"):
        bob.take()
    ann.keep()  # a host that waits takes nothing away
    ann.release()
    with pytest.raises(NotFitError, match="turn of bob@bench"):
        ann.take()
    bob.take()
    bob.release()
    ann.take()
    want = bench.farmed.folder / LOCKS / "want"
    assert not list(want.iterdir())
    with pytest.raises(NotFitError):
        bob.look()
    ann.release()
    (waiting,) = want.iterdir()
    words = waiting.read_text().split(" ", 1)
    waiting.write_text(f"0 {words[1]}")
    ann.take()


def test_a_lock_lapses_by_the_clock_of_the_phone(bench: AdbBench) -> None:
    ann, bob = lock_of(bench.phone, "ann", lapses_s=1), lock_of(bench.phone, "bob")
    renewed = bench.farmed.folder / LOCKS / "held" / ann.me

    def until_s() -> int:
        return int(renewed.read_text().split()[0])

    def hold() -> None:
        with held(ann) as taken:
            first_s = until_s()
            wait_until(lambda: until_s() > first_s + 1, "renewals in the background")
            taken.require()
            renewed.write_text(renewed.read_text().replace(str(until_s()), "0", 1))
            bob.take()

    with pytest.raises(LostHoldError):
        hold()
    bench.inject(Fault.REBOOT)
    wait_until(lambda: can_take(ann), "a lock of another start of the phone not to count")


def can_take(lock: PhoneLock) -> bool:
    try:
        lock.phone.connect()
        lock.take()
    except TransientError:
        return False
    return True


def test_a_file_that_is_no_lock_locks_nothing(bench: AdbBench) -> None:
    folder = bench.farmed.folder / LOCKS / "held"
    folder.mkdir(parents=True)
    texts = ("", "\n", "99999 x y", "9" * 40, "$(id) a b", "1;id -1", "a[0] b")
    for name, text in zip("tuvwxyz", texts, strict=True):
        (folder / name).write_text(text)
    lock_of(bench.phone, "ann").take()
    assert [file.name[:1] for file in folder.iterdir()] == ["a"]


@pytest.mark.thorough
def test_of_many_that_ask_at_once_at_most_one_has_the_phone(bench: AdbBench) -> None:
    locks = [lock_of(bench.phone, name) for name in "abcdefgh"]
    has: list[int] = []

    def ask(lock: PhoneLock) -> None:
        for _ in range(6):
            try:
                lock.take()
            except NotFitError:
                continue
            has.append(1)
            assert len(has) == 1
            lock.keep()
            has.pop()
            lock.release()

    threads = [Errors(target=ask, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [thread.error for thread in threads if thread.error] == []


@pytest.fixture
def network() -> Iterator[BadNetwork]:
    with BadNetwork() as opened:
        yield opened


@pytest.mark.thorough
def test_a_server_behind_a_bad_network_costs_one_attempt_when_it_is_cut(
    new_agent: NewAgent, bench: AdbBench, network: BadNetwork
) -> None:
    server = bench.phone.server
    address = network.lead_to(server.port, delay_s=0.005)
    agent = new_agent(adb_server=address)
    assert_good(measure_patiently(agent, make_task()), bench)

    def cut() -> None:
        wait_until_it_runs(bench)
        network.cut()
        threading.Timer(1.0, network.mend).start()

    cutting = threading.Thread(target=cut)
    cutting.start()
    failure = failure_of(agent.measure(make_task(policy=ENDLESS)))
    cutting.join()
    assert failure.is_transient
    assert failure.wait is None
    assert_good(measure_patiently(agent, make_task()), bench)
    network.cut()
    away = failure_of(agent.measure(make_task()))
    assert away.wait is not None
    assert "did not start" in away.message
    network.mend()  # no server was started at its port
    assert_good(measure_patiently(agent, make_task()), bench)


@pytest.mark.thorough
def test_a_connection_on_which_nothing_answers_is_opened_anew(
    new_agent: NewAgent, bench: AdbBench, network: BadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "ASK_TIMEOUT_S", 1.0)
    address = network.lead_to(int(bench.farmed.address.rpartition(":")[2]))
    agent = new_agent(serial=address)
    assert_good(measure_patiently(agent, make_task()), bench)
    network.forget()
    assert failure_of(agent.measure(make_task())).wait is not None
    assert_good(measure_patiently(agent, make_task()), bench)
    bench.phone.server.disconnect(address)


class Errors(threading.Thread):
    """Keeps the error of its thread."""

    error: BaseException | None = None

    def run(self) -> None:
        try:
            super().run()
        except BaseException as error:
            self.error = error
