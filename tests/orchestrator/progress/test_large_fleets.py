"""What is shown of a fleet with more devices than a person reads."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from wording import has

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.cli.live_table import render
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.fleet_state import MOST_LISTED, DeviceProgress, listed
from fleetrank.orchestrator.progress import PlainLines
from fleetrank.orchestrator.progress_events import (
    DeviceWaits,
    Event,
    RepeatFinished,
    RepeatStarted,
    SweepFinished,
    SweepStarted,
)
from fleetrank.orchestrator.progress_file import ProgressFile
from fleetrank.orchestrator.progress_view import View, updated
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import read_status

SWEEP = "s-20260101T000000-aa"
N = 300


def waits(number: int, reason: str, limit_s: float | None = 600.0, **changes: bool) -> DeviceWaits:
    return DeviceWaits(device=f"d{number:04}", host="h", reason=reason, waited_s=float(number),
                       ask_again_s=1.0, limit_s=limit_s, is_news=True, **changes)  # fmt: skip


def what_happens(n: int) -> Sequence[Event]:
    """Of ten devices four measure, three are hot, one is reserved, set aside and given up each."""
    begin = RepeatStarted(device="", host="h", label="m", repeat=0, attempt=0)
    return [
        *(replace(begin, device=f"d{k:04}") for k in range(n) if k % 10 < 4),
        *(waits(k, f"battery at {k} C") for k in range(n) if k % 10 in (4, 5, 6)),
        *(waits(k, "used by ann") for k in range(7, n, 10)),
        *(waits(k, "host h9 is unavailable", None) for k in range(8, n, 10)),
        *(waits(k, "given up", None, is_left_out=True) for k in range(9, n, 10)),
    ]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cluster.yaml").write_text("cluster_name: t\n")
    store = ResultStore(tmp_path / "results")
    cells = {f"d{number:04}": 1 for number in range(N)}
    plan = {"n_cells": N, "repeats": 2, "cells_by_device": cells}
    store.create_sweep(SweepRecord.model_validate({"sweep_id": SWEEP, "plan": plan}))
    write = ProgressFile(store.progress_path(SWEEP), clock=lambda: 0.0)
    for event in what_happens(N):
        write(event)
    write(SweepFinished(sweep_id=SWEEP, n_ok=0, n_failed=0, n_left=0, seconds=1.0,
                        is_interrupted=False))  # fmt: skip
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_large_fleet_is_a_page_of_which_no_reason_takes_everything(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ResultStore(workspace / "results")
    with store.lease(SWEEP):
        assert run(["sweep", "status"]) == 0
        brief = capsys.readouterr().out
        assert run(["sweep", "status", "--all"]) == 0
        whole = capsys.readouterr().out
        devices = read_status(store, SWEEP).devices
    assert len(devices) == N
    assert len(brief.splitlines()) < 40
    assert has(brief, "300 devices", "120 measuring", "120 waiting", "30 set aside", "30 left out")
    assert "90: battery at … C; 30: used by ann" in brief
    assert has(brief, "280 more", "--all")
    shown = re.findall(r"^d\d{4}.*", brief, re.MULTILINE)
    kinds = ("given up", "h9", "battery at 296", "used by ann")
    assert all(any(kind in line for line in shown) for kind in kinds)
    assert len(re.findall(r"^d\d{4}", whole, re.MULTILINE)) == N


def test_failures_come_before_devices_that_wait_and_the_longest_wait_first() -> None:
    calm = {"state": DeviceProgress.PENDING, "reason": None, "waited_s": None, "n_failed": 0}
    devices = [calm | {"device": number} for number in range(MOST_LISTED)]
    assert listed(devices) == devices
    hot = calm | {"state": DeviceProgress.WAITING, "reason": "hot"}
    devices += [
        hot | {"device": "a", "waited_s": 5.0},
        hot | {"device": "b", "waited_s": 9.0},
        calm | {"device": "c", "n_failed": 1},
        hot | {"device": "d", "state": DeviceProgress.LEFT_OUT},
    ]
    assert [one["device"] for one in listed(devices)] == ["d", "c", "b", "a"]


def test_lines_count_the_waiting_devices_of_a_large_fleet_once_a_minute() -> None:
    now_s, stream = [0.0], io.StringIO()
    lines = PlainLines(stream, clock=lambda: now_s[0])
    lines(SweepStarted(sweep_id="s", n_cells=N, n_repeats=N, n_done=0, n_skipped=0,
                       estimate_s=None))  # fmt: skip
    for event in what_happens(N):
        lines(event)
    assert len(stream.getvalue().splitlines()) < MOST_LISTED
    now_s[0] = 61.0
    lines(RepeatFinished(device="d0000", host="h", label="m", repeat=0, attempt=0, flags=(),
                         latency_p50_ns=1e6, error=None, will_retry=False))  # fmt: skip
    last = stream.getvalue().splitlines()[-1]
    assert "119 measuring, 120 waiting, 1 pending" in last
    assert "battery at … C" in last


def test_the_live_table_counts_what_it_does_not_list() -> None:
    view = View()
    for event in what_happens(100):
        view = updated(view, event, 0.0)
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(render(view, 1.0))
    assert has(console.export_text(), "100 devices", "40 measuring", "10 set aside")
