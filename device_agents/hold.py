"""What is held while a device is used, such as the lock on a phone that several hosts reach."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from fleetrank.device_agents.errors import TransientError
from fleetrank.foundation.errors import FleetError

_logger = logging.getLogger(__name__)


class LostHoldError(TransientError):
    """Another user has the device now; what was measured meanwhile is worth nothing."""


class Hold(Protocol):
    """Something that one user has at a time, and that lapses if it is not renewed."""

    @property
    def every_s(self) -> float:
        """Seconds between two renewals; it must not lapse within twice this time."""
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


def _now_s() -> float:
    """Also counts while this host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
