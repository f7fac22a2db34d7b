"""What is held while a device is used: between uses, after a loss, and by commands."""

from pathlib import Path

import pytest
from waiting import wait_until

from fleetrank.device_agents import hold
from fleetrank.device_agents.errors import NotFitError, PermanentError
from fleetrank.device_agents.hold import CommandHold, KeptHold, LostHoldError, Reservation


class Place:
    """A hold that a test takes away."""

    every_s = 0.01

    def __init__(self) -> None:
        self.did: list[str] = []
        self.is_lost = False

    def take(self) -> None:
        self.did.append("take")
        self.is_lost = False

    def keep(self) -> None:
        if self.is_lost:
            raise LostHoldError("ann has it", "wait")

    def release(self) -> None:
        self.did.append("release")


def test_it_stays_between_uses_and_is_given_back_when_idle() -> None:
    place = Place()
    kept = KeptHold(place, idle_s=0.2)
    for _ in range(3):
        with kept.used():
            pass
    assert place.did == ["take"]
    wait_until(lambda: place.did == ["take", "release"], "the end of its idle time")
    with kept.used(), kept.used():
        kept.leave()
        assert place.did[2:] == ["take"], "not while it is used"
    assert place.did[2:] == ["take", "release"]


def test_a_loss_costs_one_use_and_is_not_released() -> None:
    place = Place()
    kept = KeptHold(place)

    def use() -> None:
        with kept.used() as taken:
            place.is_lost = True
            wait_until(taken.is_lost, "a renewal in the background")

    with pytest.raises(LostHoldError):
        use()
    with kept.used():
        pass
    kept.leave()
    assert place.did == ["take", "take", "release"]


def test_a_command_without_end_is_ended_and_what_it_may_have_reserved_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "COMMAND_TIMEOUT_S", 0.3)
    released = tmp_path / "released $(x)"
    wanted = Reservation(command=("sleep", "60"), release=("touch", str(released)))
    with pytest.raises(NotFitError, match="no end after"):
        CommandHold(wanted).take()
    assert released.exists(), "by its words, without a shell"


def test_a_renewal_that_is_refused_is_a_loss() -> None:
    reserved = CommandHold(Reservation(command=("true",), renew=("sh", "-c", "echo ann; false")))
    reserved.take()
    with pytest.raises(LostHoldError, match="ann"):
        reserved.keep()


def test_a_command_that_reads_its_input_finds_it_empty() -> None:
    CommandHold(Reservation(command=("sh", "-c", "! read line"))).take()


def test_a_program_that_is_missing_is_no_wait() -> None:
    with pytest.raises(PermanentError, match="no-such-lab"):
        CommandHold(Reservation(command=("no-such-lab", "x"))).take()
