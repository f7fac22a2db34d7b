"""What a terminal shows: a console that escapes text, statistics, the live table."""

import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from fleetrank.analysis.tables.formats import (
    EXPLAIN_HINT,
    MISSING,
    REASON,
    Grid,
    grid_of,
    grid_of_rows,
    heading,
    least_wanted,
    sentences_of_reasons,
    value_text,
    without_shared,
)
from fleetrank.analysis.tables.table import with_brief_notes
from fleetrank.foundation.errors import count_of, duration, visible
from fleetrank.orchestrator.cli.visible_streams import VisibleStream
from fleetrank.orchestrator.progress import (
    DeviceView,
    Event,
    ExportFinished,
    Notice,
    PhaseStarted,
    RepeatFinished,
    SweepFinished,
    SweepStarted,
    View,
    printable,
    sentence,
    unreal,
    updated,
    waiting,
)

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table

_GAP = 2
_LEAST_TEXT = 16
"""Least width of a text column; narrower is hard to read. A name in the first is only wrapped if it
takes more than half of the width."""

Columns = Mapping[str, list[str]]


class VisibleConsole(Console):
    """A Rich console on standard output: it sends only Rich's own control codes."""

    def __init__(self) -> None:
        stream = sys.stdout
        file = stream.unescaped if isinstance(stream, VisibleStream) else stream
        super().__init__(file=file, highlight=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of a renderable, with all text escaped except Rich's own codes."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text)
            yield Segment(text, segment.style, segment.control)


def print_on_terminal(
    table: "Table",
    console: Console,
    *,
    is_explained: bool = False,
    full: str = "--format csv",
    said: Sequence[str] = (),
) -> None:
    """Prints a table within the console's width; columns that do not fit are listed below it.

    A value that all rows share is printed once, above the table. `full` is the option that prints
    all columns; `said` are sentences on what is left out.
    """
    table = table.for_people()
    console.print(Text(table.title, style="bold"))
    _print_grid(grid_of(table), console, full)
    for one in said:
        console.print(Text(value_text(one)))
    brief = with_brief_notes(table)
    for one in (*table.notes, *table.explanation) if is_explained else brief.notes:
        console.print(Text(f"Note: {value_text(one)}"))
    if brief.explanation and not is_explained:
        console.print(Text(EXPLAIN_HINT, style="dim"))


def print_rows(rows: Sequence[Mapping[str, object]], said: Sequence[str]) -> None:
    """Prints rows with equal keys on a terminal, within its width."""
    console = VisibleConsole()
    _print_grid(grid_of_rows(rows, has_headings=True), console, "--json")
    for one in said:
        console.print(Text(one))


def _print_grid(table: Grid, console: Console, full: str) -> None:
    columns, numbers = table.columns, table.numbers
    shown, shared = without_shared(columns)
    widths = _fitting_widths(shown, numbers, console.width)
    hidden = [name for name in shown if name not in widths]
    grid = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, width in widths.items():
        title = Text(heading(name))
        grid.add_column(title, justify="right" if name in numbers else "left", width=width)
    for row in zip(*(shown[name] for name in widths), strict=True):
        grid.add_row(*(Text(cell, overflow="fold") for cell in row))
    if shared:
        console.print(Text(shared, style="dim"))
    console.print("", grid, "", sep="\n")
    if REASON in hidden:
        for line in sentences_of_reasons(columns[REASON]):
            console.print(Text(line))
    if hidden:
        names = ", ".join(hidden)
        console.print(Text(f"Hidden columns: {names}. Use a wider terminal or {full}."))


def _fitting_widths(columns: Columns, numbers: Container[str], width: int) -> Mapping[str, int]:
    """A width for each column that is not hidden; equal ones if the keys alone do not fit."""
    kept = dict(columns)
    while True:
        for least in (_LEAST_TEXT, 0):
            if (widths := _widths(kept, numbers, width, least)) is not None:
                return widths
        if (name := least_wanted(kept)) is None:
            return dict.fromkeys(kept, max(1, (width + _GAP) // len(kept) - _GAP))
        del kept[name]


def _widths(
    columns: Columns, numbers: Container[str], width: int, least: int
) -> Mapping[str, int] | None:
    """A width for each column: numbers and words unbroken, text gets the remaining room.

    Text columns have at least `least` letters, and need no more than `_LEAST_TEXT`. `None` when the
    columns do not fit.
    """
    words = {
        name: max(map(len, " ".join((heading(name), *cells)).split()), default=1)
        for name, cells in columns.items()
    }
    wanted = {
        name: max(*map(len, heading(name).split()), *map(len, cells), 1)
        for name, cells in columns.items()
    }
    first = next(iter(columns), "")
    is_name = (
        not any(" " in cell for cell in columns.get(first, ()))
        and 2 * wanted.get(first, 0) <= width
    )
    found = {
        name: most
        if name in numbers or (is_name and name == first)
        else min(most, _LEAST_TEXT, max(least, words[name]))
        for name, most in wanted.items()
    }
    left = width - sum(found.values()) - _GAP * (len(found) - 1)
    if left < 0:
        return None
    for name, most in wanted.items():
        more = min(left, most - found[name])
        found[name] += more
        left -= more
    return found


_MAX_DEVICES_SHOWN = 20
"""Maximum devices on screen; the busiest are shown and the others are counted."""


class LiveConsole:
    """Draws the view of the sweep; failures and notices stay as lines above it."""

    def __init__(self, console: Console, clock: Callable[[], float] = perf_counter) -> None:
        self._console = console
        self._clock = clock
        self._view = View()
        self._live: Live | None = None

    def __call__(self, event: Event) -> None:
        """Processes an event; the display is redrawn four times a second."""
        self._view = updated(self._view, event, self._clock())
        if isinstance(event, SweepStarted):
            self._live = Live(
                console=self._console, get_renderable=self._render, refresh_per_second=4
            )
            self._live.start()
        is_failure = isinstance(event, RepeatFinished | ExportFinished) and event.error is not None
        is_kept = is_failure or isinstance(event, SweepStarted | Notice | SweepFinished)
        if is_kept and (line := sentence(event)) is not None:
            self._console.print(Text(self._view.labels.said(line)))
        if isinstance(event, SweepFinished):
            self.close()

    def close(self) -> None:
        """Restores the terminal, also after an error."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> Group:
        return render(self._view, self._clock())


def render(view: View, now_s: float) -> Group:
    """The table of devices and the line of totals."""
    # On a narrow terminal the column of the running cell is shortened first.
    table = RichTable(box=None, pad_edge=False, expand=True)
    hosts = {device.host for device in view.devices.values()}
    has_hosts = len(hosts) > 1
    for title in (
        *(["host"] if has_hosts else []),
        "device",
        "running",
        "last",
        "done",
        "failed",
    ):
        table.add_column(
            title, overflow="ellipsis", no_wrap=True, ratio=1 if title == "running" else None
        )
    busy_first = sorted(
        view.devices.items(), key=lambda item: (item[1].running is None, item[1].waits is None)
    )
    for name, device in busy_first[:_MAX_DEVICES_SHOWN]:
        table.add_row(
            *([Text(device.host)] if has_hosts else []),
            Text(name + unreal(device.origin)),
            Text(view.labels.said(_doing(device, now_s))),
            Text(device.last),
            str(device.n_done),
            str(device.n_failed),
        )
    n_hidden = len(view.devices) - _MAX_DEVICES_SHOWN
    hidden = [Text(f"and {count_of(n_hidden, 'more device')}")] if n_hidden > 0 else []
    phase = [] if view.phase is None else [Text(_phase(view.phase, view))]
    looks = [Text(printable(one.text)) for one in view.decisions.values()][:_MAX_DEVICES_SHOWN]
    return Group(*phase, *([table] if view.devices else []), *hidden, *looks, _totals(view, now_s))


def _phase(phase: PhaseStarted, view: View) -> str:
    """What the driver does before it measures, as `exporting 3 of 6: resnet18 to onnx`."""
    if not phase.n_steps:
        return phase.name
    number = min(view.n_steps_done + 1, phase.n_steps)
    files = f": {', '.join(view.exporting)}" if view.exporting else ""
    return f"{phase.name} {number} of {phase.n_steps}{files}"


def _doing(device: DeviceView, now_s: float) -> str:
    """What a device does now: measures, waits for a reason, or nothing."""
    if device.waits is not None and device.waits_since_s is not None:
        return waiting(device.waits, now_s - device.waits_since_s)
    return printable(device.running or MISSING)


def _totals(view: View, now_s: float) -> Text:
    n_done = view.n_done_before + view.n_done
    left = view.n_repeats - n_done - view.n_failed
    eta_s = view.eta_s(now_s) if left else None
    # An estimate that is used up says nothing.
    eta = "" if not eta_s else f", about {duration(eta_s)} left"
    of_all = count_of(view.n_repeats, "repeat")
    return Text(f"{n_done} of {of_all} done, {view.n_failed} failed, {left} to go{eta}")
