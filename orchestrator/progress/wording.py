"""Formats events as sentences, and numbers for reading."""

from fleetrank.foundation.visible_text import visible_line
from fleetrank.foundation.vocabulary import Origin
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.progress.events import (
    Event,
    ExportFinished,
    ExportStarted,
    Notice,
    RepeatFinished,
    RepeatStarted,
    SweepFinished,
    SweepStarted,
)

STOPPING = "stopping when the running work is stored; press Ctrl-C again to stop now"
"""The message after the first Ctrl-C."""
_NAMED_FLAGS = 4


def sentence(event: Event) -> str | None:
    """One line about an event; `None` for an event that a log omits."""
    match event:
        case SweepStarted():
            return _started(event)
        case ExportStarted() | RepeatStarted():
            return None
        case ExportFinished():
            return _exported(event)
        case RepeatFinished():
            return _repeated(event)
        case Notice():
            return printable(f"{event.level}: {event.message}")
        case SweepFinished():
            return _finished(event)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def milliseconds(latency_ns: float) -> str:
    """Milliseconds with at least three digits."""
    return f"{latency_ns / 1e6:.3g} ms" if latency_ns < 1e9 else f"{latency_ns / 1e6:.0f} ms"


def unreal(origin: Origin) -> str:
    """Suffix for a name that is not measured on a real device, such as ` (simulated)`."""
    return "" if origin is Origin.MEASURED else f" ({origin})"


def printable(text: str) -> str:
    """Escapes text from files, so that it cannot move the terminal's cursor or start a line."""
    return visible_line(text)


def _started(event: SweepStarted) -> str:
    cells, repeats = count_of(event.n_cells, "cell"), count_of(event.n_repeats, "repeat")
    parts = [f"sweep {event.sweep_id}: {cells}, {repeats}"]
    if event.n_done:
        parts.append(f"{event.n_done} done before")
    if event.n_skipped:
        parts.append(f"{count_of(event.n_skipped, 'cell')} skipped")
    if event.estimate_s is not None:
        parts.append(f"measuring takes about {duration(event.estimate_s)} if no repeat fails")
    return ", ".join(parts)


def _exported(event: ExportFinished) -> str | None:
    name = f"{event.model} to {event.format}"
    if event.error is not None:
        return printable(f"export failed: {name}: {event.error}")
    return None if event.is_cached else f"exported {name} in {duration(event.seconds)}"


def _repeated(event: RepeatFinished) -> str:
    name = f"{event.label}, repeat {event.repeat + 1}"
    if event.attempt:
        name += f", attempt {event.attempt + 1}"
    name += unreal(event.origin)
    if event.error is not None:
        end = " (will be retried)" if event.will_retry else ""
        return printable(f"failed: {name}: {event.error}{end}")
    latency = "-" if event.latency_p50_ns is None else milliseconds(event.latency_p50_ns)
    flags = f" [{', '.join(event.flags)}]" if event.flags else ""
    return printable(f"{latency:>9}  {name}{flags}")


def _finished(event: SweepFinished) -> str:
    state = "stopped" if event.is_interrupted else "finished"
    counts = f"{event.n_ok} measured, {event.n_failed} failed, {event.n_left} left"
    text = f"sweep {event.sweep_id} {state} after {duration(event.seconds)}: {counts}"
    if event.n_flagged:
        flags = ", ".join(f"{flag} {count}" for flag, count in event.flags[:_NAMED_FLAGS])
        flagged = count_of(event.n_flagged, "result carries", "results carry")
        text += f"; {flagged} a warning flag ({flags})"
    return text
