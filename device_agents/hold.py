"""What is held while a device is used: the lock on a phone, or the reservation of a lab."""

import getpass
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Protocol

from fleetrank.device_agents.contract.task import Seconds, SecondsOrNone
from fleetrank.device_agents.errors import NotFitError, PermanentError, TransientError
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import LONGEST_WAIT_S
from fleetrank.foundation.supervised_child import End, exit_name, run_child
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Checked, Key
from fleetrank.foundation.visible_text import shortened, visible_line

_logger = logging.getLogger(__name__)


class LostHoldError(TransientError):
    """Another user has the device now; what was measured meanwhile is worth nothing."""


class Hold(Protocol):
    """Something that one user has at a time, and that lapses if it is not renewed."""

    @property
    def every_s(self) -> float:
        """Seconds between two renewals; if one fails, the next must still be in time."""
        ...

    def take(self) -> None:
        """Takes it.

        Raises:
            NotFitError: another user has it; the reason names the user.
            FleetError: it cannot be taken.
        """
        ...

    def keep(self) -> None:
        """Renews it.

        Raises:
            LostHoldError: it lapsed, and another user has it or had it.
            FleetError: it was not renewed now; it is tried again.
        """
        ...

    def release(self) -> None:
        """Gives it back; raises as `keep`."""
        ...


class Held:
    """A hold that was taken and is renewed in the background."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._lost: LostHoldError | None = None
        self._kept_s = _now_s()
        self._ended = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def is_lost(self) -> bool:
        """Whether a renewal has found that another user has it or had it."""
        return self._lost is not None

    def require(self) -> None:
        """Returns if it is surely held now; renews it if the last renewal is too long ago.

        Raises:
            LostHoldError: it is lost.
            FleetError: it may have lapsed and cannot be renewed now.
        """
        with self._turn:
            if self._lost is not None:
                raise self._lost
            asked_s = _now_s()
            if asked_s - self._kept_s < self._hold.every_s:
                return
            try:
                self._hold.keep()
            except LostHoldError as error:
                self._lost = error
                raise
            self._kept_s = asked_s

    def end(self) -> None:
        """Stops the renewals and gives it back; raises `LostHoldError` if it was lost."""
        self._ended.set()
        self._thread.join()
        if self._lost is not None:
            raise self._lost
        try:
            self._hold.release()
        except LostHoldError:
            raise
        except FleetError as error:
            _logger.warning("not released, so it lapses by itself: %s", error)

    def _renew(self) -> None:
        # Each time later than `every_s` after the last renewal, so that `require` renews.
        while not self._ended.wait(self._hold.every_s):
            try:
                self.require()
            except LostHoldError:
                return
            except FleetError as error:
                _logger.warning("not renewed now: %s", error)


@contextmanager
def held(hold: Hold) -> Iterator[Held]:
    """Takes it for the block, renews it meanwhile, and gives it back on every exit.

    Raises:
        NotFitError: another user has it.
        LostHoldError: it was lost during the block.
    """
    hold.take()
    taken = Held(hold)
    try:
        yield taken
    finally:
        taken.end()


IDLE_S = 120.0
"""A device that is not used for so long is given back: its sweep measures others, or has died."""


class KeptHold:
    """A hold that stays taken between two uses. Safe to use from any thread."""

    def __init__(self, hold: Hold, idle_s: float = IDLE_S) -> None:
        self._hold = hold
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._held: Held | None = None
        self._n_users = 0
        self._is_wanted = True
        self._timer: threading.Timer | None = None

    @contextmanager
    def used(self) -> Iterator[Held]:
        """Takes it for the block unless it is taken still; raises as `held`."""
        with self._lock:
            self._stop_timer()
            taken = self._held = self._taken()
            self._n_users += 1
            self._is_wanted = True
        try:
            yield taken
            taken.require()
        finally:
            with self._lock:
                self._n_users -= 1
                if self._n_users == 0 and self._is_wanted:
                    self._timer = threading.Timer(self._idle_s, self.leave)
                    self._timer.daemon = True
                    self._timer.start()
                elif self._n_users == 0:
                    self._end()

    def leave(self) -> None:
        """Gives it back now, or at the end of its use."""
        with self._lock:
            self._is_wanted = False
            if self._n_users == 0:
                self._stop_timer()
                self._end()

    def _taken(self) -> Held:
        """What is held still, or is taken now because it was given back or lost."""
        if self._held is not None:
            try:
                self._held.require()
            except FleetError:
                self._end()
            else:
                return self._held
        self._hold.take()
        return Held(self._hold)

    def _end(self) -> None:
        taken, self._held = self._held, None
        try:
            if taken is not None:
                taken.end()
        except LostHoldError as error:
            _logger.warning("%s", error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_LONGEST_REASON = 200
COMMAND_TIMEOUT_S = 30.0
"""Of one command; a command that waits for its turn must give up earlier and is called again."""


def _a_command(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words; raises `ValueError` for words that can start no program."""
    if not words or not words[0] or any("\0" in word for word in words):
        raise ValueError("give a program and its arguments")
    return words


LabCommand = Annotated[tuple[str, ...], Checked(_a_command)]
"""A command of a lab in a device file: a list of words, the program first; no shell reads them."""


_NAME = r"^[^-\s]\S*$"
"""A name that a program does not take for an option."""
LABGRID = "labgrid-client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """How a device is reserved; the key `reserve` of a device file."""

    __pydantic_config__ = NO_OTHER_KEYS

    command: Annotated[
        LabCommand | None,
        Key("program and arguments that reserve it; any exit code but 0 means: not now"),
    ] = None
    release: Annotated[LabCommand | None, Key("gives it back; null: it lapses by itself")] = None
    renew: Annotated[LabCommand | None, Key("renews it; any exit code but 0 means: it is lost")] = (
        None
    )
    labgrid: Annotated[
        str | None, Key("place of a labgrid, instead of the three commands", pattern=_NAME)
    ] = None
    coordinator: Annotated[
        str | None,
        Key("host:port of labgrid's coordinator (default: as labgrid-client)", pattern=_NAME),
    ] = None
    every_s: Annotated[Seconds, Key("pause between two renewals, and two tries to reserve")] = 30.0
    limit_s: Annotated[
        SecondsOrNone, Key("how long a sweep waits for it; 0 leaves the device out at once")
    ] = LONGEST_WAIT_S

    def __post_init__(self) -> None:
        """Raises `ValueError` unless it is one way of reserving."""
        if (self.command is None) == (self.labgrid is None):
            raise ValueError("give either a command or the place of a labgrid")
        if self.labgrid is None and self.coordinator is not None:
            raise ValueError("a coordinator needs the place of a labgrid")
        if self.labgrid is not None and (self.release or self.renew):
            raise ValueError("a place of a labgrid needs no commands")

    def commands(self) -> "Commands":
        """As they are called on this host.

        Source: labgrid 26.0: `acquire` fails if any user has the place, also this one. `env` fails
        if this user does not have it. `release-from` leaves the place of another user alone.
        """
        if self.command is not None:
            return Commands(take=self.command, keep=self.renew, release=self.release)
        to = () if self.coordinator is None else ("-x", self.coordinator)
        client = (LABGRID, *to, "-p", str(self.labgrid))
        host = os.environ.get("LG_HOSTNAME", socket.gethostname())
        user = os.environ.get("LG_USERNAME") or getpass.getuser()
        release = (*client, "release-from", f"{host}/{user}")
        return Commands(take=(*client, "acquire"), keep=(*client, "env"), release=release)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The words of the commands of a reservation."""

    take: tuple[str, ...]
    keep: tuple[str, ...] | None
    release: tuple[str, ...] | None


_GUARD = """
import subprocess, sys
if not sys.stdin.read():
    subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=False)
"""
"""Runs a command when its standard input ends without a word: its parent was killed."""


class CommandHold:
    """A reservation by commands, as a `Hold`.

    The words are passed to the programs as they are, without a shell. A small process releases it
    if this process is killed.
    """

    def __init__(self, reservation: Reservation) -> None:
        """Reserves nothing yet."""
        self._wanted = reservation
        self._commands = reservation.commands()
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def every_s(self) -> float:
        """As of `Reservation`."""
        return self._wanted.every_s

    def take(self) -> None:
        """As of `Hold`; a command that was ended at its time limit may have reserved it."""
        wanted = self._wanted
        self._disarm()  # of a reservation that was lost
        refusal, is_ended = _run(self._commands.take)
        if is_ended:
            self.release()
        if refusal is not None:
            remedy = "wait until its user releases it, or correct `reserve` in the device file"
            raise NotFitError(
                f"the device is not reserved: {refusal}", remedy, wanted.every_s, wanted.limit_s
            )
        if self._commands.release is not None:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GUARD, *self._commands.release],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # it must not hear Ctrl-C
            )

    def keep(self) -> None:
        """As of `Hold`."""
        if self._commands.keep is None:
            return
        refusal, _ = _run(self._commands.keep)
        if refusal is not None:
            self._disarm()
            message = f"the reservation of the device is lost: {refusal}"
            raise LostHoldError(message, "it is reserved again for the next try")

    def release(self) -> None:
        """As of `Hold`."""
        self._disarm()
        if self._commands.release is not None:
            refusal, _ = _run(self._commands.release)
            if refusal is not None:
                raise TransientError(f"the device is not released: {refusal}", "release it by hand")

    def _disarm(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate(b"over")


def _run(command: tuple[str, ...]) -> tuple[str | None, bool]:
    return run_command(command, "reserve", timeout_s=COMMAND_TIMEOUT_S)


def cannot_start(command: tuple[str, ...], key: str, reason: object) -> PermanentError:
    """The error of a command that stands under a key of a device file."""
    return PermanentError(
        f"`{command[0]}` cannot be started: {reason}",
        f"correct `{key}` in the device file, or install it on the host of the device",
    )


def run_command(command: tuple[str, ...], key: str, *, timeout_s: float) -> tuple[str | None, bool]:
    """Runs a command of a lab, the value of a key of a device file.

    Returns:
        Why it failed, with the last line that it wrote, or `None`; and whether its time limit
        ended it.

    Raises:
        PermanentError: it cannot be started.
    """
    try:
        ended = run_child(command, None, timeout_s=timeout_s)
    except OSError as error:
        raise cannot_start(command, key, error) from error
    if ended.end is End.ITSELF and ended.exit_code == 0:
        return None, False
    lines = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
    said = (
        shortened(visible_line(lines[-1][:500]), _LONGEST_REASON)
        if lines
        else exit_name(ended.exit_code)
    )
    is_ended = ended.end is not End.ITSELF
    why = f"no end after {ended.timeout_s:g} s" if is_ended else said
    return f"`{command[0]}`: {why}", is_ended


def _now_s() -> float:
    """Also counts while this host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
