"""The events of a sweep as frozen values, and the publisher that sends them to subscribers.

Only subscribers print: a live table on a terminal, or lines in a pipe or a log file.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, TextIO

import orjson

from fleetrank.analysis.labels import Labels, labels_of
from fleetrank.analysis.stored.sweep_record import SweepState
from fleetrank.analysis.tables.formats import MISSING
from fleetrank.foundation.codec import json_text
from fleetrank.foundation.errors import BadFileError, count_of, duration, visible_line, with_flags
from fleetrank.foundation.files import StorageError, replace_file
from fleetrank.foundation.inputs import IMAGE
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.foundation.vocabulary import Origin, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStarted:
    """The plan is ready.

    Attributes:
        n_done: repeats that an earlier run of the same sweep finished.
        estimate_s: until the end, with exports and the start of Ray.
        platforms: keys of all platforms of the plan.
    """

    sweep_id: str
    n_cells: int
    n_repeats: int
    n_done: int
    n_skipped: int
    estimate_s: float | None
    platforms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted:
    """The driver begins with something before it measures, such as starting Ray.

    Attributes:
        n_steps: how many `ExportFinished` follow; 0 for a phase without steps.
    """

    name: str
    n_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfExport:
    """What events of one export name; `workload` is `image` unless the model takes tokens."""

    model: str
    format: str
    workload: str = str(IMAGE)
    precision: str = Precision.FP32.value

    @property
    def label(self) -> str:
        """The file, as people read it."""
        what = self.model if self.workload == str(IMAGE) else f"{self.model} {self.workload}"
        unusual = "" if self.precision == Precision.FP32 else f" {self.precision}"
        return f"{what} to {self.format}{unusual}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportStarted(_OfExport):
    """A model is being exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFinished(_OfExport):
    """An artifact is ready, or `error` gives the reason why it is not, and `remedy` what to do."""

    seconds: float
    is_cached: bool
    error: str | None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfRepeat:
    """What events of one repeat name; `origin` is the value that its rows will have."""

    device: str
    host: str
    label: str
    repeat: int
    attempt: int
    origin: Origin = Origin.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatStarted(_OfRepeat):
    """A device has started one repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatFinished(_OfRepeat):
    """One attempt has been stored; `latency_p50_ns` is `None` when it failed.

    Attributes:
        will_retry: another attempt follows, or an earlier one was counted: it does not count.
        has_no_file: it failed without a try, because its export had failed and was reported.
    """

    latency_p50_ns: float | None
    flags: tuple[str, ...]
    error: str | None
    will_retry: bool
    has_no_file: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWaits:
    """A device cannot be measured now; its repeat is left for later, and other devices go on.

    Ends with the next other event of the device; the same attempt then has a second
    `RepeatStarted`. Comes again with another reason, and after a minute.

    Attributes:
        reason: such as a temperature, or the failure after which the device was set aside or
            given up.
        waited_s: since it first gave a reason.
        ask_again_s: seconds until it is asked again.
        limit_s: after waiting this long in all its repeat fails; `None` if it is set aside.
        is_news: the first, or the first for a minute; lines leave the others out, and what another
            line has said.
    """

    device: str
    host: str
    reason: str
    waited_s: float
    ask_again_s: float
    limit_s: float | None
    is_news: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPair:
    """Two models whose order is open, and the rounds that are needed if their figures stay.

    Attributes:
        more_rounds: `None` if they are more than a thousand, or nothing is known.
        seconds: that these take, at the pace so far.
    """

    a: str
    b: str
    more_rounds: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsMade:
    """A sweep until decided has looked at the models that it compares on one platform.

    Attributes:
        contest: workload and platform, in any precision.
        platform: key of one of these platforms, or a device whose platforms are compared.
        n: decisions that the question asks for; `n_decided` are taken.
        answer: what is known now.
        n_repeats: that follow; 0 at the end.
        is_budget_used: why none follow though pairs are open.
        is_news: a decision was taken, or this look is the last; lines leave the others out.
    """

    contest: str
    platform: str
    question: str
    margin: float
    n: int
    n_decided: int
    answer: str
    open_pairs: tuple[OpenPair, ...]
    n_repeats: int
    is_budget_used: bool = False
    is_news: bool = True

    @property
    def text(self) -> str:
        """For a person, in one line."""
        return decided(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message for the user without further effect; `level` is info or warning."""

    level: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFinished:
    """A run of a sweep has ended, for any reason; counts include its earlier runs.

    Attributes:
        n_failed: repeats that were tried and have no valid measurement.
        is_unreal: every device is simulated or virtual.
        n_profile_failed: profiled repeats that failed; not part of the other numbers.
        n_sets_failed: sets of processes that failed; not part of them either.
    """

    sweep_id: str
    n_ok: int
    n_failed: int
    n_left: int
    seconds: float
    is_interrupted: bool
    is_unreal: bool = False
    n_profile_failed: int = 0
    n_sets_failed: int = 0

    @property
    def n_missing(self) -> int:
        """Repeats without a valid measurement, failed or pending."""
        return self.n_failed + self.n_left

    @property
    def state(self) -> SweepState:
        """Of the record; pending repeats of a regular end belong to an abandoned device."""
        if self.is_interrupted:
            return SweepState.INTERRUPTED
        return SweepState.STOPPED if self.n_left else SweepState.FINISHED


Event = (
    SweepStarted
    | PhaseStarted
    | ExportStarted
    | ExportFinished
    | RepeatStarted
    | RepeatFinished
    | DeviceWaits
    | DecisionsMade
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


# Formats events as sentences, and numbers for reading.

STOPPING = "stopping when the running work is stored; press Ctrl-C again to stop now"
"""The message after the first Ctrl-C."""


def sentence(event: Event) -> str | None:
    """One line about an event; `None` for an event that a log omits."""
    line: str | None = None
    match event:
        case SweepStarted():
            line = _started(event)
        case ExportFinished():
            line = _exported(event)
        case RepeatFinished():
            line = _repeated(event)
        case DeviceWaits(is_news=True):
            line = _waits(event)
        case DecisionsMade(is_news=True):
            line = printable(event.text)
        case Notice():
            line = printable(f"{event.level}: {event.message}")
        case SweepFinished():
            line = _finished(event)
    return line


def milliseconds(latency_ns: float | None) -> str:
    """Milliseconds with at least three digits; a missing latency as in tables."""
    if latency_ns is None:
        return MISSING
    return f"{latency_ns / 1e6:.3g} ms" if latency_ns < 1e9 else f"{latency_ns / 1e6:.0f} ms"


def counted_from_one(row: Mapping[str, object]) -> dict[str, object]:
    """The row for people: stored repeats and attempts begin at 0, shown ones at 1."""
    numbers = {name: row[name] for name in ("repeat", "attempt") if name in row}
    return dict(row) | {
        name: number + 1 for name, number in numbers.items() if isinstance(number, int)
    }


def unreal(origin: Origin) -> str:
    """Suffix for a name that is not measured on a real device, such as ` (simulated)`."""
    return "" if origin is Origin.MEASURED else f" ({origin})"


def printable(text: str) -> str:
    """The text for a terminal: choices are options, and no cursor moves and no line starts."""
    return visible_line(with_flags(text))


def _started(event: SweepStarted) -> str:
    cells, repeats = count_of(event.n_cells, "cell"), count_of(event.n_repeats, "repeat")
    parts = [f"sweep {event.sweep_id}: {cells}, {repeats}"]
    if event.n_done:
        parts.append(f"{event.n_done} done before")
    if event.n_skipped:
        parts.append(f"{count_of(event.n_skipped, 'cell')} skipped")
    if event.estimate_s is not None:
        parts.append(f"about {duration(event.estimate_s)} if no repeat fails")
    if common := labels_of(event.platforms).common:
        parts.append(f"all on {common}")
    return ", ".join(parts)


def _exported(event: ExportFinished) -> str | None:
    name = event.label
    if event.error is not None:
        end = "" if event.remedy is None else f"\n  -> {printable(event.remedy)}"
        return printable(f"export failed: {name}: {event.error}") + end
    return None if event.is_cached else f"exported {name} in {duration(event.seconds)}"


def _repeated(event: RepeatFinished) -> str | None:
    if event.has_no_file:
        return None  # the failed export was reported
    if event.error is not None:
        name = f"{event.label}, repeat {event.repeat + 1}{unreal(event.origin)}"
        end = " (will be retried)" if event.will_retry else ""
        return printable(f"failed: {name}: {event.error}{end}")
    what, _, platform = event.label.partition(" on ")
    latency = milliseconds(event.latency_p50_ns)
    return printable(f"{what}  {platform}{unreal(event.origin)}  {latency}")


def waiting(reason: str, waited_s: float) -> str:
    """Why a device waits, and for how long."""
    time = f" for {duration(waited_s)}" if waited_s >= 1 else ""
    return printable(f"waits{time}: {reason}")


def _waits(event: DeviceWaits) -> str:
    again = "" if event.ask_again_s < 1 else f"; asked again in {duration(event.ask_again_s)}"
    limit = "" if event.limit_s is None else f" (at most {duration(event.limit_s)})"
    return f"{event.device} {waiting(event.reason, event.waited_s)}{again}{limit}"


_MOST_PAIRS = 3
"""Open pairs that a line names."""


def decided(made: Mapping[str, Any]) -> str:
    """A look at the decisions of a platform, by the fields of `DecisionsMade`, as a line."""
    pairs = [_open_pair(one) for one in made["open_pairs"]]
    said = f"{made['n_decided']} of {count_of(made['n'], 'decision')} taken"
    parts = [f"{said} on {made['platform']}", made["answer"]]
    if pairs:
        more = [f"{len(pairs) - _MOST_PAIRS} more"] if len(pairs) > _MOST_PAIRS else []
        parts.append(f"open: {', '.join([*pairs[:_MOST_PAIRS], *more])}")
    if made["n_repeats"]:
        parts.append(f"{count_of(made['n_repeats'], 'more repeat')} now")
    elif pairs:
        used = "the budget is" if made["is_budget_used"] else "all repeats are"
        parts.append(f"{used} used")
    return "; ".join(parts)


def _open_pair(pair: Mapping[str, Any]) -> str:
    rounds, seconds = pair["more_rounds"], pair["seconds"]
    if rounds is None:
        more = "over 1,000 more rounds"
    else:
        more = f"about {count_of(rounds, 'more round')}, {duration(seconds)}"
    return f"{pair['a']} against {pair['b']} ({more})"


def _finished(event: SweepFinished) -> str:
    state = "stopped" if event.is_interrupted else "finished"
    counts = f"{event.n_ok} measured, {event.n_failed} failed, {event.n_left} left"
    return f"sweep {event.sweep_id} {state} after {duration(event.seconds)}: {counts}"


# The state of a running sweep, updated event by event; pure. Consoles and files show it.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """The state of one device while a sweep runs.

    Attributes:
        waits: why it cannot be measured now; `None` while it can.
        waits_since_s: on the display's clock.
    """

    host: str = ""
    running: str | None = None
    waits: str | None = None
    waits_since_s: float | None = None
    last: str = ""
    n_done: int = 0
    n_failed: int = 0
    origin: Origin = Origin.MEASURED


_UNNAMED = Labels({})


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All values that a display shows; computed from events only, so that it can be tested."""

    n_repeats: int = 0
    n_done_before: int = 0
    n_done: int = 0
    n_failed: int = 0
    phase: PhaseStarted | None = None
    n_steps_done: int = 0
    exporting: tuple[str, ...] = ()
    devices: Mapping[str, DeviceView] = field(default_factory=dict)
    started_s: float | None = None
    measuring_since_s: float | None = None
    estimate_s: float | None = None
    labels: Labels = _UNNAMED
    decisions: Mapping[str, DecisionsMade] = field(default_factory=dict)

    def eta_s(self, now_s: float) -> float | None:
        """Seconds left of all phases: first the plan's estimate, then the pace of the repeats.

        `None` before the start, and without an estimate before the first repeat is done.
        """
        n_finished = self.n_done + self.n_failed
        if n_finished == 0 or self.measuring_since_s is None:
            if self.started_s is None or self.estimate_s is None:
                return None
            return max(0.0, self.estimate_s - (now_s - self.started_s))
        n_left = self.n_repeats - self.n_done_before - n_finished
        return (now_s - self.measuring_since_s) / n_finished * max(0, n_left)


def updated(view: View, event: Event, now_s: float) -> View:
    """The view after an event."""
    changes: dict[str, Any] = {}
    match event:
        case SweepStarted():
            changes = {
                "n_repeats": event.n_repeats,
                "n_done_before": event.n_done,
                "started_s": now_s,
                "estimate_s": event.estimate_s,
                "labels": labels_of(event.platforms),
            }
        case PhaseStarted():
            changes = {"phase": event, "n_steps_done": 0}
        case DecisionsMade():
            changes = {
                "decisions": {**view.decisions, event.contest: event},
                "n_repeats": view.n_repeats + event.n_repeats,
            }
        case ExportStarted():
            changes = {"exporting": (*view.exporting, event.label)}
        case ExportFinished():
            left = tuple(name for name in view.exporting if name != event.label)
            changes = {"exporting": left, "n_steps_done": view.n_steps_done + 1}
        case RepeatStarted() | RepeatFinished() | DeviceWaits():
            return after_repeats(view, [event], now_s)
    return replace(view, **changes)


def after_repeats(
    view: View, events: Sequence[RepeatStarted | RepeatFinished | DeviceWaits], now_s: float
) -> View:
    """The view after many events; copies the fleet only once."""
    devices = dict(view.devices)
    n_done = n_failed = 0
    since_s = view.measuring_since_s
    for event in events:
        device = devices.get(event.device, DeviceView())
        if isinstance(event, RepeatStarted):
            since_s = now_s if since_s is None else since_s
            running = f"{event.label} #{event.repeat + 1}"
            devices[event.device] = replace(
                device,
                host=event.host,
                running=running,
                origin=event.origin,
                waits=None,
                waits_since_s=None,
            )
        elif isinstance(event, DeviceWaits):
            devices[event.device] = replace(
                device,
                host=event.host,
                running=None,
                waits=event.reason,
                waits_since_s=now_s - event.waited_s,
            )
        else:
            devices[event.device] = after = _after_repeat(device, event)
            n_done += after.n_done - device.n_done
            n_failed += after.n_failed - device.n_failed
    return replace(
        view,
        devices=devices,
        n_done=view.n_done + n_done,
        n_failed=view.n_failed + n_failed,
        measuring_since_s=since_s,
        phase=view.phase if since_s is None else None,
    )


def _after_repeat(device: DeviceView, event: RepeatFinished) -> DeviceView:
    is_ok = event.error is None
    last = milliseconds(event.latency_p50_ns) if is_ok else "failed"
    return DeviceView(
        host=event.host,
        running=None,
        last=last,
        n_done=device.n_done + int(is_ok and not event.will_retry),
        n_failed=device.n_failed + int(not is_ok and not event.will_retry),
        origin=event.origin,
    )


# Progress as a small file, read from another terminal or a browser.

_PAUSE_S = 1.0
"""Minimum time between two writes: a fleet of a thousand devices has 1,000 events a second."""


def shallow(one: Event | DeviceView) -> dict[str, Any]:
    """The fields by name. `asdict` would copy what is in them, for each repeat and device."""
    return {named.name: getattr(one, named.name) for named in fields(one)}


class ProgressFile:
    """Writes the view of the sweep after events: a few kilobytes, without fsync.

    A subscriber of events. Readers see a complete file: the new or the previous one. A crash may
    lose the file and a resume rewrites it; the journal holds the results.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self._path = path
        self._clock = clock
        self._view = View()
        self._repeats: list[RepeatStarted | RepeatFinished | DeviceWaits] = []
        self._written_s: float | None = None

    def __call__(self, event: Event) -> None:
        """Processes an event."""
        now_s = self._clock()
        if is_repeat := isinstance(event, RepeatStarted | RepeatFinished | DeviceWaits):
            self._repeats.append(event)
        else:
            self._view = updated(self._view, event, now_s)
        is_due = self._written_s is None or now_s - self._written_s >= _PAUSE_S
        # The next event of a device that waits can be a minute away.
        is_rare = isinstance(event, DeviceWaits) and (event.is_news or event.limit_s is None)
        is_due = is_due or is_rare
        if isinstance(event, SweepFinished) or (is_due and is_repeat):
            self._view = after_repeats(self._view, self._repeats, now_s)
            self._repeats = []
            self._written_s = now_s
            # The journal reports a full disk.
            with contextlib.suppress(StorageError):
                self._write(now_s)

    def _write(self, now_s: float) -> None:
        devices = {}
        for name, device in self._view.devices.items():
            stated = shallow(device)
            # How long it waits, because readers have another clock.
            del stated["waits_since_s"]
            since_s = device.waits_since_s
            devices[name] = stated | {"waited_s": None if since_s is None else now_s - since_s}
        content = {
            "written_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds_left": self._view.eta_s(now_s),
            "devices": devices,
            "decisions": [asdict(one) for one in self._view.decisions.values()],
        }
        replace_file(self._path, orjson.dumps(content))


def read_progress(path: Path) -> dict[str, dict[str, object]]:
    """The state of each device when the file was written, by device; empty without a file."""
    try:
        devices = read_json_object(path)["devices"]
    except (BadFileError, KeyError):
        return {}
    return dict(devices) if isinstance(devices, dict) else {}


def read_decisions(path: Path) -> list[dict[str, Any]]:
    """The last looks of a sweep until decided, as `DecisionsMade`; empty without a file."""
    try:
        found = read_json_object(path)["decisions"]
        looks = [dict(one) for one in found] if isinstance(found, list) else []
        for look in looks:
            decided(look)
    except (BadFileError, KeyError, TypeError, ValueError, AttributeError):
        return []
    return looks


def waits_of(device: Mapping[str, object]) -> str | None:
    """Why and how long a device of `read_progress` waits, for a person; `None` if it does not."""
    reason, waited_s = device.get("waits"), device.get("waited_s")
    if not isinstance(reason, str) or not isinstance(waited_s, float):
        return None
    return waiting(reason, waited_s)


class JsonLines:
    """Writes each event as `{"event": "RepeatFinished", ...}`; fields as in `progress`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        """Writes and flushes, so that a reader of the pipe gets each event at once."""
        content = {"event": type(event).__name__, **asdict(event)}
        self._stream.write(json_text(content) + "\n")
        self._stream.flush()


class PlainLines:
    """Writes one sentence per event; overwrites nothing and needs no terminal.

    While it measures, a line a minute says how long it takes against the plan's estimate.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = perf_counter) -> None:
        self._stream = stream
        self._clock = clock
        self._n_done = 0
        self._view = View()
        self._said_s = 0.0

    def __call__(self, event: Event) -> None:
        """Writes the event's sentence, if there is one, and the progress if it is due."""
        now_s, was_measuring = self._clock(), self._view.measuring_since_s is not None
        self._view = updated(self._view, event, now_s)
        self._write(event)
        if self._view.measuring_since_s is None or not was_measuring:
            self._said_s = now_s
        elif isinstance(event, RepeatFinished) and now_s - self._said_s >= _HEARTBEAT_S:
            self._said_s = now_s
            self._stream.write(f"{pace(self._view, now_s)}\n")
            self._stream.flush()

    def _write(self, event: Event) -> None:
        if isinstance(event, SweepStarted):
            self._n_done = event.n_done
        line = sentence(event)
        if isinstance(event, RepeatFinished):
            self._n_done += not event.will_retry
        if line is None:
            return
        if isinstance(event, RepeatFinished):
            line = f"{self._n_done}/{self._view.n_repeats}  {line}"
        self._stream.write(f"{self._view.labels.said(line)}\n")
        self._stream.flush()


_HEARTBEAT_S = 60.0
"""Between two lines about the progress: seldom enough for the log of a long sweep."""


def pace(view: View, now_s: float) -> str:
    """The time since the start and the time left, against the plan's estimate."""
    elapsed_s = 0.0 if view.started_s is None else now_s - view.started_s
    n_done = view.n_done_before + view.n_done + view.n_failed
    text = f"progress: {n_done} of {view.n_repeats} repeats after {duration(elapsed_s)}"
    if (left_s := view.eta_s(now_s)) is not None:
        text += f", about {duration(left_s)} left"
    planned = view.estimate_s
    return text if planned is None else f"{text} (the plan estimated {duration(planned)})"
