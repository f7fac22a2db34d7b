"""Profiles of two phones through the real command: which operator makes one of them slow."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from adb_bench import TINY_TFLITE, phone_options

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.virtual_phone.farm import FarmSpec, VirtualFarm
from fleetrank.device_agents.virtual_phone.profile import Fault

pytestmark = [pytest.mark.adb, pytest.mark.slow]

SPEC = """name: t
models: [net]
backends: {tflite: [builtin]}
runtimes: [tflite]
devices: [usual, slow]
repeats: 5
profile: true
measure: {min_warmup_s: 0.0, min_runs: 20, max_time_s: 0.5}
limits: {timeout_s: 60}
"""


@pytest.fixture
def phones(folder, server: AdbServer, tmp_path: Path) -> Iterator[None]:
    """Two equal phones; convolutions are slow on one of them."""
    key_file = Path.home() / ".android/adbkey.pub"
    profiles = ("pixel-8", "pixel-8")
    spec = FarmSpec(folder=tmp_path / "phones", count=2, profiles=profiles, key_file=key_file)
    with VirtualFarm(spec) as farm, ExitStack() as stack:
        farm.inject(1, Fault.SLOW_CONVOLUTION)
        for name, phone in zip(("usual", "slow"), farm.phones, strict=True):
            server.connect(phone.address)
            stack.callback(server.disconnect, phone.address)
            options = phone_options(server, phone.address)
            device = {"name": name, "kind": "android", "options": options}
            (folder.root / "devices" / f"{name}.yaml").write_text(yaml.safe_dump(device))
        shutil.copy(TINY_TFLITE, folder.root / "net.tflite")
        folder.add_model("net", folder.root / "net.tflite")
        yield


@pytest.mark.thorough
@pytest.mark.usefixtures("phones")
def test_the_operator_that_breaks_the_transfer_is_named(folder) -> None:
    (folder.root / "sweeps" / "t.yaml").write_text(SPEC)
    done = folder.run("sweep", "run", "sweeps/t.yaml", "--inline")
    assert done.returncode == 0, done.stderr
    words = ("--include-simulated", "--split", "operator", "--json")
    shown = folder.run("report", "show", "components", "--part", "ratios", *words)
    assert shown.returncode == 0, shown.stderr
    rows = json.loads(shown.stdout)["rows"]
    assert {row["component"] for row in rows} == {"CONV_2D", "TRANSPOSE"}
    (pair,) = {(row["source"], row["target"]) for row in rows}
    sign = 1 if "slow" in pair[1] else -1
    found = {row["component"]: row["relative"] ** sign for row in rows}
    assert found["CONV_2D"] > 1 > found["TRANSPOSE"]
    shares = json.loads(folder.run("report", "show", "components", *words).stdout)["rows"]
    assert {row["n_processes"] for row in shares} == {5}
    assert len(folder.rows()) == 10, "profiles are no latencies"


@pytest.mark.thorough
@pytest.mark.usefixtures("phones")
def test_a_phone_is_profiled_by_the_command(folder) -> None:
    words = (
        "run",
        "net",
        "--profile",
        "--device",
        "usual",
        "--runtime",
        "tflite",
        "--repeats",
        "2",
    )
    done = folder.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    shown = folder.run("report", "show", "components", "--split", "operator", "--json")
    rows = json.loads(shown.stdout)["rows"]
    assert {row["component"] for row in rows} == {
        "Convolution (NHWC, F32) IGEMM",
        "Transpose (ND, F32)",
    }
    assert all(row["about_ms"] > 0 for row in rows)
    own = folder.run(*words, "--backend", "builtin", "--json")
    assert own.returncode == 0, own.stderr
    modules = {row["component"] for row in json.loads(own.stdout)["components"]["rows"]}
    assert modules == {"0", "(no module named)"}, "the last node writes the output"
