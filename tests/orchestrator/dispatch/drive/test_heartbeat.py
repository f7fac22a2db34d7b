"""A silent minute is explained, and no other."""

from fleetrank.orchestrator.dispatch.decide.state import Lane
from fleetrank.orchestrator.dispatch.drive.heartbeat import SILENT_S, Heartbeat
from fleetrank.orchestrator.progress.events import Event, Notice, RepeatFinished, RepeatStarted


def begun(device: str) -> RepeatStarted:
    return RepeatStarted(device=device, host="h", label=f"net on {device}", repeat=1, attempt=0)


def ended(device: str) -> RepeatFinished:
    return RepeatFinished(
        device=device, host="h", label="", repeat=1, attempt=0, latency_p50_ns=1.0, flags=(),
        error=None, will_retry=False,
    )  # fmt: skip


def lane(device: str, probe_at_s: float | None = None) -> Lane:
    return Lane(device=device, host="h", needs_quiet=False, probe_at_s=probe_at_s)


def said(events: list[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Notice)]


def test_a_silent_minute_says_what_runs_and_what_is_waited_for() -> None:
    events: list[Event] = []
    now = [0.0]
    heart = Heartbeat(events.append, lambda: now[0])
    heart(begun("pixel"))
    heart(begun("box"))
    heart(ended("box"))
    now[0] = SILENT_S - 1
    heart.beat([lane("pixel"), lane("old", probe_at_s=99.0)])
    assert said(events) == []
    now[0] = SILENT_S + 15
    heart.beat([lane("pixel"), lane("old", probe_at_s=99.0)])
    heart.beat([lane("pixel")])
    (text,) = said(events)
    assert "1 min 00 s" in text
    assert "pixel has been running net on pixel, repeat 2, for 1 min 15 s" in text
    assert text.endswith("waiting for old")


def test_it_speaks_once_a_minute_and_any_event_counts_as_news() -> None:
    events: list[Event] = []
    now = [0.0]
    heart = Heartbeat(events.append, lambda: now[0])
    for second in range(0, 185, 5):
        now[0] = float(second)
        heart.beat([])
    assert ["no repeat" in text for text in said(events)] == [True] * 3
    heart(begun("a"))
    now[0] += SILENT_S - 1
    heart.beat([])
    assert len(said(events)) == 3


def test_a_fleet_is_counted_not_listed() -> None:
    events: list[Event] = []
    now = [0.0]
    heart = Heartbeat(events.append, lambda: now[0])
    for number in range(9):
        heart(begun(f"d{number}"))
    now[0] = SILENT_S
    heart.beat([])
    (text,) = said(events)
    assert text.endswith("; 6 more")
