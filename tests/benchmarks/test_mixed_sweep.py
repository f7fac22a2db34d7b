"""A sweep of this host's CPU and three phones: a phone that waits holds back no other device."""

import argparse
import importlib
from pathlib import Path
from types import ModuleType

import pytest
from adb_bench import private_server

from fleetrank.device_agents.android.adb_server import find_adb

pytestmark = pytest.mark.adb

ROOT = Path(__file__).parents[2]
ASKED = argparse.Namespace(models=2, repeats=2, measure_s=0.3, cool_s=3.0, back_s=None)


@pytest.fixture
def mixed_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return importlib.import_module("mixed_sweep")


@pytest.mark.thorough
def test_the_processor_and_the_good_phone_are_done_while_the_others_wait(
    mixed_sweep: ModuleType, tmp_path: Path
) -> None:
    with private_server(find_adb(), tmp_path) as server:
        lanes = mixed_sweep.run(ASKED, tmp_path, server)
    (cpu,) = [device for device in lanes.ended_s if device.startswith("cpu")]
    ended_s = lanes.ended_s
    assert {device: len(times) for device, times in ended_s.items()} == dict.fromkeys(
        (cpu, "phone-00", "phone-01", "phone-02"), ASKED.models * ASKED.repeats
    )
    assert set(lanes.waited_s) >= {"phone-00", "phone-01"}
    assert cpu not in lanes.waited_s
    # The phone is plugged in again when the processor has ended: a processor that waits for it
    # would wait until the phone is given up.
    assert ended_s["phone-01"][0] < ended_s[cpu][-1] < ended_s["phone-01"][1]
    assert ended_s[cpu][-1] < ended_s["phone-00"][-1]
