"""The events of a sweep as frozen values, and the publisher that sends them to subscribers.

Only subscribers print.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fleetrank.foundation.inputs.workload import IMAGE
from fleetrank.foundation.vocabulary import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStarted:
    """The plan is ready; `n_done` repeats were finished by an earlier run of the same sweep."""

    sweep_id: str
    n_cells: int
    n_repeats: int
    n_done: int
    n_skipped: int
    estimate_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportStarted:
    """A model is being exported; `workload` is `image` unless it takes tokens."""

    model: str
    format: str
    workload: str = str(IMAGE)

    @property
    def label(self) -> str:
        """The file, as people read it."""
        return _file(self.model, self.workload, self.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFinished:
    """An artifact is ready, or `error` gives the reason why it is not, and `remedy` what to do."""

    model: str
    format: str
    seconds: float
    is_cached: bool
    error: str | None
    remedy: str | None = None
    workload: str = str(IMAGE)

    @property
    def label(self) -> str:
        """The file, as people read it; equal to that of its start."""
        return _file(self.model, self.workload, self.format)


def _file(model: str, workload: str, form: str) -> str:
    what = model if workload == str(IMAGE) else f"{model} {workload}"
    return f"{what} to {form}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatStarted:
    """A device has started one repeat; `origin` is the value that its rows will have."""

    device: str
    host: str
    label: str
    repeat: int
    attempt: int
    origin: Origin = Origin.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatFinished:
    """One attempt has been stored; `latency_p50_ns` is `None` when it failed.

    Attributes:
        will_retry: another attempt follows, or an earlier one was counted: it does not count.
        has_no_file: it failed without a try, because its export had failed and was reported.
    """

    device: str
    host: str
    label: str
    repeat: int
    attempt: int
    latency_p50_ns: float | None
    flags: tuple[str, ...]
    error: str | None
    will_retry: bool
    has_no_file: bool = False
    origin: Origin = Origin.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWaits:
    """A device cannot be measured now; its repeat is left for later, and other devices go on.

    Ends with the next other event of the device; the same attempt then has a second
    `RepeatStarted`. Comes again each time the device was asked and is not fit.

    Attributes:
        reason: such as a temperature, or the failure after which the device was set aside or
            given up.
        waited_s: since it first gave a reason.
        ask_again_s: seconds until it is asked again.
        limit_s: after waiting this long in all its repeat fails; `None` if it is set aside.
        is_news: the first, or the first for a minute; lines leave the others out.
    """

    device: str
    host: str
    reason: str
    waited_s: float
    ask_again_s: float
    limit_s: float | None
    is_news: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message for the user without further effect; `level` is info or warning."""

    level: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFinished:
    """The sweep has ended, for any reason.

    Attributes:
        n_failed: repeats without a valid measurement.
        n_flagged: measured repeats that carry a flag.
        flags: number of repeats for each flag, the most frequent first.
    """

    sweep_id: str
    n_ok: int
    n_failed: int
    n_left: int
    seconds: float
    is_interrupted: bool
    n_flagged: int = 0
    flags: tuple[tuple[str, int], ...] = ()


Event = (
    SweepStarted
    | ExportStarted
    | ExportFinished
    | RepeatStarted
    | RepeatFinished
    | DeviceWaits
    | Notice
    | SweepFinished
)
Subscriber = Callable[[Event], None]


_log = logging.getLogger(__name__)


class Publisher:
    """A `Subscriber` that forwards to others; may be called from several threads."""

    def __init__(self, subscribers: Iterable[Subscriber]) -> None:
        self._subscribers = list(subscribers)
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Forwards the event; an error in a subscriber does not reach the sweep."""
        with self._lock:
            for subscriber in tuple(self._subscribers):
                try:
                    subscriber(event)
                except Exception:
                    self._subscribers.remove(subscriber)
                    _log.warning("progress display switched off: it failed", exc_info=True)
