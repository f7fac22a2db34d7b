"""Formats events as sentences, and numbers for reading."""

from collections.abc import Mapping

from fleetrank.analysis.labels import labels_of
from fleetrank.analysis.tables.values import MISSING
from fleetrank.foundation.visible_text import visible_line
from fleetrank.foundation.vocabulary import Origin
from fleetrank.foundation.wording import count_of, duration, with_flags
from fleetrank.orchestrator.progress_events import (
    DecisionsMade,
    DeviceWaits,
    Event,
    ExportFinished,
    Notice,
    PowerCycled,
    RepeatFinished,
    SweepFinished,
    SweepStarted,
)

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
        case PowerCycled():
            level = "info" if event.error is None else "warning"
            line = printable(f"{level}: {event.text}")
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


def _finished(event: SweepFinished) -> str:
    state = "stopped" if event.is_interrupted else "finished"
    counts = f"{event.n_ok} measured, {event.n_failed} failed, {event.n_left} left"
    return f"sweep {event.sweep_id} {state} after {duration(event.seconds)}: {counts}"
