"""Real programs of an ARM phone in a sweep: registered, measured, checked, and in no ranking."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from adb_bench import keep_canary
from emulated import UNTIMED, tools
from phone_farm.farm import FarmedPhone, FarmSpec, VirtualFarm
from world import NETWORK

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.contract.kind import VirtualMode

pytestmark = [pytest.mark.adb, pytest.mark.export, pytest.mark.slow]

SPEC = """name: t
models: [mine]
runtimes: [onnx, tflite]
precision: [fp32, int8]
devices: [arm, local-cpu]
backends: {onnx: cpu, tflite: builtin}
repeats: 1
measure: {min_warmup_s: 0.0, min_runs: 10, min_observed_s: 0.0, max_time_s: 0.5}
limits: {timeout_s: 120, max_attempts: 1}
"""


@pytest.fixture
def phone(server: AdbServer, tmp_path: Path) -> Iterator[FarmedPhone]:
    tools()
    key_file = Path.home() / ".android/adbkey.pub"
    folder = tmp_path / "phones"
    with VirtualFarm(FarmSpec(folder=folder, mode=VirtualMode.EMULATED, key_file=key_file)) as farm:
        yield farm.phones[0]
        server.disconnect(farm.phones[0].address)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_real_programs_are_registered_and_measured_and_enter_no_ranking(
    folder, phone: FarmedPhone, server: AdbServer
) -> None:
    make_canary(folder)
    given = [word for name, path in tools().items() for word in ("--tool", f"{name}={path}")]
    options = {"adb_server": server.address, **UNTIMED}
    words = [f"--option={name}={value}" for name, value in options.items()]
    added = folder.run("devices", "add", "--adb", phone.address, "--name", "arm", *given, *words)
    assert added.returncode == 0, added.stderr
    (folder.root / "cards" / "mine.toml").write_text(NETWORK)
    (folder.root / "sweeps" / "t.yaml").write_text(SPEC)
    folder.run("sweep", "run", "t", "--inline")
    rows = {
        (row["device"] == "arm", row["runtime"], row["precision"]): row for row in folder.rows()
    }
    failed = {place for place, row in rows.items() if row["status"] != "ok"}
    # The build of 2020 does not know the operators of today's 8-bit files, and says so.
    assert failed == {(True, "tflite", "int8")}
    assert len(rows) == 8
    assert {row["origin"] for place, row in rows.items() if place[0]} == {"emulated"}
    phones, hosts = (rows[is_phone, "onnx", "int8"] for is_phone in (True, False))
    # Without instructions for products of bytes (VNNI), sums of this host's processor saturate.
    assert phones["snr_db"] > hosts["snr_db"] - 1
    assert phones["top1_agreement"] > 0.5
    assert phones["backend_nodes"] == phones["graph_nodes"]
    assert rows[True, "tflite", "fp32"]["statistic"] == "mean"
    for words, devices in (((), 1), (("--include-simulated",), 2)):
        shown = folder.run("report", "show", "latency", "--precision", "fp32", "--json", *words)
        table = json.loads(shown.stdout)
        assert len({row["platform_key"].split("/")[0] for row in table["rows"]}) == devices
        assert ("DATA FROM EMULATED DEVICES" in shown.stdout) is (devices == 2)


def make_canary(folder) -> None:
    """One that XNNPACK of 2020 runs as a whole; the usual one would be exported first."""
    file = folder.root / "canary.tflite"
    import litert_torch  # two seconds of every run's collection

    convolution = litert_torch.to_channel_last_io(torch.nn.Conv2d(3, 4, 3), [0], [0]).eval()
    litert_torch.convert(convolution, (torch.zeros(1, 16, 16, 3),)).export(str(file))
    keep_canary(folder.root / "artifacts", file)
