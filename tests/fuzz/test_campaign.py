"""The campaign finds what is planted, makes it small, keeps it, and goes on."""

import os
import signal
import time
from pathlib import Path

import campaign
import counts
import pytest
import target as target_module
from hypothesis import strategies as st
from target import Crash, Target, TooSlow, judge


def plant(monkeypatch: pytest.MonkeyPatch, folder: Path, check: object, **fields: object) -> None:
    """Makes one planted target the only one, and `folder` the place of what is found."""
    target = Target(check, st.binary(max_size=8), name="planted", **fields)
    monkeypatch.setattr(campaign, "TARGETS", {"planted": target})
    monkeypatch.setattr(counts, "FOUND", folder)
    monkeypatch.setattr(target_module, "MAX_CPU_S", 0.3)


def run(inputs: int = 300) -> counts.Count:
    (count,) = campaign.run_campaign(["planted"], inputs, 1, 0)
    return count


def refuse_or_fail(data: bytes) -> int:
    if len(data) > 6:
        raise ValueError("too long")
    if data[:1] > b"\x80":
        raise KeyError(data)
    assert data[:1] != b"\x07", "a bell"
    return len(data)


def test_two_defects_are_found_made_small_and_saved(monkeypatch, tmp_path) -> None:
    plant(monkeypatch, tmp_path, refuse_or_fail, may_raise=(ValueError,))
    count = run()
    assert count.inputs >= 300
    assert count.refused > 30
    assert len(count.crashes) == 2
    assert sorted(path.read_bytes() for path in tmp_path.glob("planted/*.bin")) == [
        b"\x07", b"\x81",
    ]  # fmt: skip
    table = counts.report([count])
    assert table.splitlines()[1].split()[:2] == ["planted", str(count.inputs)]
    assert "CRASH planted: KeyError" in table
    assert "CRASH planted: AssertionError" in table


def test_an_input_that_ends_the_process_is_kept(monkeypatch, tmp_path) -> None:
    def end(data: bytes) -> None:
        if len(data) > 5:
            os.kill(os.getpid(), signal.SIGKILL)

    plant(monkeypatch, tmp_path, end)
    count = run()
    assert list(count.crashes) == ["the process ended with -9"]
    (path,) = tmp_path.glob("planted/*.bin")
    assert len(path.read_bytes()) > 5


def test_an_input_that_takes_too_long_is_stopped_and_kept(monkeypatch, tmp_path) -> None:
    def spin(data: bytes) -> None:
        while data[:1] == b"\xff":
            sum(range(1000))

    plant(monkeypatch, tmp_path, spin)
    target = campaign.TARGETS["planted"]
    assert not judge(target, b"").is_refusal
    with pytest.raises(Crash, match="CPU time") as caught:
        judge(target, b"\xff")
    assert caught.value.is_slow


def test_no_reader_can_catch_the_end_of_its_time(monkeypatch, tmp_path) -> None:
    def stubborn(_data: bytes) -> None:
        try:
            while True:
                sum(range(1000))
        except Exception:
            time.sleep(0)

    plant(monkeypatch, tmp_path, stubborn)
    assert not issubclass(TooSlow, Exception)
    with pytest.raises(Crash, match="TooSlow"):
        judge(campaign.TARGETS["planted"], b"")


def test_a_clean_run_has_no_crash_and_counts_what_was_told_apart(monkeypatch, tmp_path) -> None:
    plant(monkeypatch, tmp_path, len)
    count = run()
    assert not count.crashes
    assert len(count.outcomes) == 9
    assert not list(tmp_path.iterdir())
