"""The file others read while a sweep runs."""

import json
from dataclasses import replace
from pathlib import Path

from fleetrank.orchestrator.progress_events import (
    DeviceWaits,
    RepeatFinished,
    RepeatStarted,
    SweepFinished,
)
from fleetrank.orchestrator.progress_file import ProgressFile, read_progress

BEGUN = RepeatStarted(device="box", host="lab", label="m on box", repeat=0, attempt=0)
DONE = RepeatFinished(
    device="box",
    host="lab",
    label="m on box",
    repeat=0,
    attempt=0,
    latency_p50_ns=1e6,
    flags=(),
    error=None,
    will_retry=False,
)
WAITS = DeviceWaits(
    device="box",
    host="lab",
    reason="it is hot",
    waited_s=0.0,
    ask_again_s=10.0,
    limit_s=600.0,
    is_news=True,
)
OVER = SweepFinished(sweep_id="s", n_ok=1, n_failed=0, n_left=0, seconds=1.0, is_interrupted=False)


def test_it_says_what_each_device_does_and_is_not_written_for_every_event(tmp_path: Path) -> None:
    path, now_s = tmp_path / "s.progress", [0.0]
    file = ProgressFile(path, clock=lambda: now_s[0])
    file(BEGUN)
    assert read_progress(path)["box"]["running"] == "m on box #1"
    file(DONE)
    assert read_progress(path)["box"]["n_done"] == 0, "too soon after the last writing"
    now_s[0] = 1.5
    file(BEGUN)
    assert read_progress(path)["box"]["n_done"] == 1
    file(DONE)
    file(OVER)
    assert read_progress(path)["box"] == {
        "host": "lab", "running": None, "last": "1 ms", "n_done": 2, "n_failed": 0,
        "origin": "measured", "waits": None, "waited_s": None, "state": "pending",
        "power": [],
    }  # fmt: skip
    assert json.loads(path.read_text())["written_utc"].endswith("+00:00")
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.progress"]


def test_a_device_that_waits_is_written_at_once_with_reason_and_time(tmp_path: Path) -> None:
    path, now_s = tmp_path / "s.progress", [0.0]
    file = ProgressFile(path, clock=lambda: now_s[0])
    file(BEGUN)
    file(WAITS)
    box = read_progress(path)["box"]
    assert (box["running"], box["waits"], box["waited_s"]) == (None, "it is hot", 0.0)
    now_s[0] = 10.0
    file(replace(WAITS, waited_s=10.0, is_news=False))
    assert read_progress(path)["box"]["waited_s"] == 10.0
    now_s[0] = 20.0
    file(BEGUN)
    box = read_progress(path)["box"]
    assert (box["running"], box["waits"], box["waited_s"]) == ("m on box #1", None, None)


def test_a_file_that_is_missing_or_damaged_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.progress"
    assert read_progress(path) == {}
    for content in ("", "{", "[]", '{"devices": 3}'):
        path.write_text(content)
        assert read_progress(path) == {}


def test_a_full_disk_does_not_end_a_sweep(tmp_path: Path) -> None:
    ProgressFile(tmp_path / "no folder" / "s.progress")(BEGUN)
