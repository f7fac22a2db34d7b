"""What people and programs are shown while a sweep runs."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from wording import has

from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.vocabulary import Origin
from fleetrank.foundation.wording import duration
from fleetrank.orchestrator.cli.live_table import LiveConsole, render
from fleetrank.orchestrator.progress import JsonLines, PlainLines, Publisher
from fleetrank.orchestrator.progress_events import (
    DeviceWaits,
    Event,
    ExportFinished,
    ExportStarted,
    Notice,
    PhaseStarted,
    RepeatFinished,
    RepeatStarted,
    SweepFinished,
    SweepStarted,
)
from fleetrank.orchestrator.progress_view import View, updated
from fleetrank.orchestrator.progress_words import milliseconds, sentence

STARTED = SweepStarted(
    sweep_id="s-1", n_cells=2, n_repeats=4, n_done=1, n_skipped=0, estimate_s=60.0
)
BEGUN = RepeatStarted(device="box", host="local", label="resnet18 on box", repeat=0, attempt=0)
FINISHED = SweepFinished(
    sweep_id="s-1", n_ok=3, n_failed=1, n_left=0, seconds=61.0, is_interrupted=False
)


def ended(error: str | None = None, *, will_retry: bool = False) -> RepeatFinished:
    return RepeatFinished(
        host="local",
        device="box",
        label="resnet18 on box",
        repeat=0,
        attempt=0,
        latency_p50_ns=None if error else 12_345_678.0,
        flags=("drift",),
        error=error,
        will_retry=will_retry,
    )


HAPPENED: list[Event] = [
    STARTED,
    ExportStarted(model="resnet18", format="onnx"),
    ExportFinished(model="resnet18", format="onnx", seconds=2.0, is_cached=False, error=None),
    BEGUN,
    ended("lost\x1b[2J\nforged line", will_retry=True),
    BEGUN,
    ended(),
    Notice(level="warning", message="the disk is nearly full"),
    FINISHED,
]


def test_an_export_names_the_precision_that_it_writes() -> None:
    started = ExportStarted(model="resnet18", format="onnx", precision="int8")
    assert updated(View(), started, 0.0).exporting == ("resnet18 to onnx int8",)


def test_two_workloads_of_a_model_are_two_files() -> None:
    starts = [
        ExportStarted(model="gpt2", format="onnx", workload=workload)
        for workload in ("prefill@128", "decode@128")
    ]
    view = View()
    for event in starts:
        view = updated(view, event, 0.0)
    ended_one = ExportFinished(
        model="gpt2",
        format="onnx",
        workload="prefill@128",
        seconds=1.0,
        is_cached=False,
        error=None,
    )
    assert updated(view, ended_one, 1.0).exporting == ("gpt2 decode@128 to onnx",)
    assert has(str(sentence(ended_one)), "gpt2 prefill@128 to onnx")


def test_a_failing_subscriber_is_left_out_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Event] = []

    def fail(event: Event) -> None:
        raise BrokenPipeError

    publish = Publisher([fail, seen.append])
    for event in HAPPENED:
        publish(event)
    assert seen == HAPPENED
    assert len(caplog.records) == 1


def test_json_lines_carry_every_field() -> None:
    stream = io.StringIO()
    for event in HAPPENED:
        JsonLines(stream)(event)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [type(event).__name__ for event in HAPPENED]
    assert lines[6]["latency_p50_ns"] == 12_345_678.0
    assert lines[6]["flags"] == ["drift"]


def test_plain_lines_count_repeats_and_not_attempts() -> None:
    stream = io.StringIO()
    plain = PlainLines(stream)
    for event in HAPPENED:
        plain(event)
    text = stream.getvalue()
    assert "1/4  failed" in text
    assert "2/4  resnet18  box  12.3 ms" in text
    assert "3 measured, 1 failed, 0 left" in text


def test_lines_and_table_say_what_no_real_device_measures() -> None:
    stream = io.StringIO()
    begun = replace(BEGUN, origin=Origin.SIMULATED)
    PlainLines(stream)(replace(ended(), origin=Origin.SIMULATED))
    Console(file=stream, width=100).print(render(updated(View(), begun, 0.0), 1.0))
    line, _head, row, _totals = stream.getvalue().splitlines()
    assert "resnet18  box (simulated)" in line
    assert row.startswith("box (simulated)")


WAITS = DeviceWaits(
    device="phone",
    host="lab",
    reason="its battery is at 40.2 C",
    waited_s=70.0,
    ask_again_s=10.0,
    limit_s=600.0,
    is_news=True,
)


def test_a_device_that_waits_is_seen_with_reason_and_time_in_lines_and_on_the_screen() -> None:
    stream = io.StringIO()
    plain = PlainLines(stream)
    plain(WAITS)
    plain(replace(WAITS, waited_s=80.0, is_news=False))
    (line,) = stream.getvalue().splitlines()
    assert has(line, "phone", duration(70.0), "40.2 C", duration(10.0), duration(600.0))
    begun = replace(BEGUN, device="phone")
    view = updated(updated(View(), begun, 0.0), WAITS, 70.0)
    screen = io.StringIO()
    Console(file=screen, width=120).print(render(view, 75.0))
    assert has(screen.getvalue(), duration(75.0), "40.2 C")
    again = io.StringIO()
    Console(file=again, width=120).print(render(updated(view, begun, 80.0), 81.0))
    assert "40.2 C" not in again.getvalue()


def test_one_of_a_thing_is_not_called_many() -> None:
    one = replace(STARTED, n_cells=1, n_repeats=1, n_done=0, n_skipped=1)
    assert has(sentence(one), "s-1", "1 cell", "1 repeat", "1 cell")


def test_a_message_from_a_device_cannot_move_the_cursor_or_forge_a_line() -> None:
    stream = io.StringIO()
    PlainLines(stream)(ended("lost\x1b[2J\nforged line"))
    assert "\x1b" not in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 1


def test_the_view_counts_and_estimates_what_is_left() -> None:
    view = View()
    for second, event in enumerate([STARTED, BEGUN, ended(), BEGUN, ended("lost")]):
        view = updated(view, event, float(second))
    assert (view.n_done, view.n_failed) == (1, 1)
    # Two repeats in ten seconds, one of four is left.
    assert view.eta_s(11.0) == pytest.approx(5.0)
    assert dict(view.devices)["box"].running is None
    assert View().eta_s(5.0) is None


def test_until_a_repeat_is_done_the_estimate_of_the_plan_counts_down() -> None:
    view = updated(updated(View(), STARTED, 0.0), BEGUN, 10.0)
    assert view.eta_s(25.0) == pytest.approx(35.0)
    assert view.eta_s(1000.0) == 0.0


def test_plain_lines_compare_the_pace_with_the_estimate_once_a_minute() -> None:
    times = iter([0.0, 5.0, 10.0, 64.0, 66.0, 70.0])
    stream = io.StringIO()
    lines = PlainLines(stream, clock=lambda: next(times))
    for event in (STARTED, BEGUN, ended(), BEGUN, ended(), BEGUN):
        lines(event)
    said = [line for line in stream.getvalue().splitlines() if line.startswith("progress")]
    # Two repeats in 61 s of 66, and one of four is left.
    assert len(said) == 1
    assert has(said[0], "3 of 4", duration(66.0), duration(30.5), duration(60.0))


def test_the_table_shows_what_runs_and_hides_most_of_a_fleet() -> None:
    view = updated(View(), STARTED, 0.0)
    for number in range(50):
        begun = RepeatStarted(device=f"d{number}", host="local", label="m", repeat=0, attempt=0)
        view = updated(view, begun, 1.0)
    stream = io.StringIO()
    Console(file=stream, width=100).print(render(view, 2.0))
    assert "and 30 more devices" in stream.getvalue()
    assert "1 of 4 repeats done" in stream.getvalue()


def test_the_live_console_keeps_failures_and_gives_the_terminal_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    live = LiveConsole(console)
    for event in HAPPENED:
        live(event)
    assert "failed: resnet18 on box" in stream.getvalue()
    assert "\x1b[?25h" in stream.getvalue(), "the cursor is shown again"
    live.close()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.4, "1 s"),
        (59.6, "1 min 00 s"),
        (185.0, "3 min 05 s"),
        (7800.0, "2 h 10 min"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_hosts_are_shown_where_there_are_several() -> None:
    one = updated(View(), BEGUN, 0.0)
    two = updated(one, replace(BEGUN, device="phone", host="lab"), 0.0)
    assert "local" not in _drawn(one)
    assert all(word in _drawn(two) for word in ("host", "local", "lab", "phone"))


def test_what_the_driver_does_before_it_measures_is_named() -> None:
    started = ExportStarted(model="resnet18", format="onnx")
    finished = ExportFinished(
        model="resnet18", format="onnx", seconds=1.0, is_cached=False, error=None
    )
    seen, view = [], View()
    for event in (
        PhaseStarted(name="starting Ray"), PhaseStarted(name="exporting", n_steps=3), started,
        finished, replace(started, format="pt2"), BEGUN,
    ):  # fmt: skip
        view = updated(view, event, 0.0)
        seen.append(_drawn(view).splitlines()[0])
    assert seen[:5] == [
        "starting Ray", "exporting 1 of 3", "exporting 1 of 3: resnet18 to onnx",
        "exporting 2 of 3", "exporting 2 of 3: resnet18 to pt2",
    ]  # fmt: skip
    assert "exporting" not in seen[5]


def _drawn(view: View) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(render(view, 1.0))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_failed_export_is_reported_once_with_its_remedy() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    lines(STARTED)
    lines(
        ExportFinished(
            model="m", format="onnx", seconds=1.0, is_cached=False, error="not ONNX", remedy="fix"
        )
    )
    for _ in range(2):
        lines(replace(ended("not ONNX"), has_no_file=True))
    lines(ended())
    written = stream.getvalue()
    assert written.count("not ONNX") == 1
    assert "\n  -> fix\n" in written
    assert "4/4  " in written, "the silent repeats are counted"


def test_a_missing_latency_reads_as_in_tables() -> None:
    assert milliseconds(None) == value_text(None)
    assert milliseconds(12_345_678.0) == "12.3 ms"
