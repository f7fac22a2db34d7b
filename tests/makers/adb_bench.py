"""Virtual phones behind a private server of the real adb, in both supported versions.

The agent on such a phone, tasks to give it, and what a good and a failed repeat look like.
"""

import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from phone_farm.farm import FarmedPhone, FarmSpec, VirtualFarm
from phone_farm.faults import Fault
from phone_farm.imitation.command import stand_in_of, stand_ins

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_files import ProgramFile, file_sha256
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.device_agents.android.state.waits import when_back
from fleetrank.device_agents.contract.kind import VirtualMode
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import (
    CanaryTask,
    Execution,
    MeasurePolicy,
    MeasureTask,
    OptionValue,
    RepeatLimits,
)
from fleetrank.device_agents.linux.patience import measure_when_fit
from fleetrank.foundation.vocabulary import Format, Origin, Runtime, Status
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import Cost, StagedExport
from fleetrank.models.networks.primer import canary_request


@dataclass(frozen=True, slots=True, kw_only=True)
class AdbBench:
    """A phone, and the farm that can do it harm."""

    farm: VirtualFarm
    farmed: FarmedPhone
    phone: Phone

    def inject(self, fault: Fault) -> None:
        self.farm.inject(0, fault)

    def clear(self, fault: Fault) -> None:
        self.farm.clear(0, fault)


@contextmanager
def private_server(adb: Path, home: Path) -> Iterator[AdbServer]:
    """A server on a port, in a home and with a key of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("ADB_LIBUSB", "0")  # starts at once instead of in 3 s
        patch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", "5554")  # looks for no emulators
        server = AdbServer(adb, free_port())
        with pytest.MonkeyPatch.context() as started:
            started.setenv("TMPDIR", str(home))  # for its log
            server.start()
        yield server
        kill = [str(adb), "-P", str(server.port), "kill-server"]
        subprocess.run(kill, check=False, timeout=30, capture_output=True)


@contextmanager
def open_bench(
    server: AdbServer,
    folder: Path,
    home: Path,
    mode: VirtualMode = VirtualMode.CANNED,
    profile: str = "pixel-8",
) -> Iterator[AdbBench]:
    """Starts one phone and connects to it."""
    key_file = home / ".android/adbkey.pub"
    spec = FarmSpec(folder=folder, key_file=key_file, mode=mode, profiles=(profile,))
    with VirtualFarm(spec) as farm:
        farmed = farm.phones[0]
        server.connect(farmed.address)
        yield AdbBench(farm=farm, farmed=farmed, phone=Phone(server, farmed.address))
        server.disconnect(farmed.address)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


TINY_TFLITE = Path(__file__).parents[1] / "device_agents" / "data" / "tiny.tflite"


def given_stand_ins() -> dict[str, Path]:
    """The programs of a phone of the farm, as a user gives them."""
    return {name: stand_in_of(name) for name in stand_ins()}


def add_standins() -> dict[str, OptionValue]:
    """Keeps the stand-ins as registered programs; the options that name them."""
    options: dict[str, OptionValue] = {}
    for name, path in given_stand_ins().items():
        sha256 = file_sha256(path)
        ProgramStore().add(ProgramFile(name=name, path=path, sha256=sha256))
        options[name] = sha256
    return options


def phone_options(server: AdbServer, address: str) -> dict[str, OptionValue]:
    """Of a phone that neither settles nor cools for long."""
    return {
        **add_standins(),
        "serial": address,
        "virtual": "canned",
        "adb": str(server.adb),
        "adb_server": server.address,
        "settle_s": 0.0,
        "max_wait_s": 0.0,
        "poll_s": 0.1,
    }


def keep_canary(artifacts: Path, file: Path = TINY_TFLITE) -> None:
    """Puts a canary that need not be exported first into a workspace's artifacts."""
    cache, request = ArtifactCache(artifacts), canary_request()
    copy = shutil.copy(file, cache.staging_dir(request) / "canary.tflite")
    cost = Cost(macs=1, parameters=1, method=None)
    staged = StagedExport(path=copy, format=Format.TFLITE, cost=cost, versions=())
    cache.commit(request, staged, None)


def leftovers(phone: Path) -> list[str]:
    """What lies on a phone that only a measurement under way may leave there."""
    folder = phone / FOLDER[1:]
    found = [path for path in folder.rglob("*") if path.name.endswith(".part")]
    found += [path for path in (folder / "run", folder / "restore.txt") if path.exists()]
    settings = phone / ".phone/settings/global"
    found += [path for path in settings.iterdir() if path.is_file()]
    return [str(path.relative_to(phone)) for path in found]


NewAgent = Callable[..., AndroidAgent]
"""Makes the agent of a phone; keyword arguments are further options."""
QUICK = MeasurePolicy(min_warmup_runs=2, min_warmup_s=0.0, min_runs=8, max_time_s=0.1)
ENDLESS = replace(QUICK, min_runs=10**7, max_time_s=600.0)
PID = "data/local/tmp/fleetrank/run/0/pid"


def make_task(**changes: object) -> MeasureTask:
    sha256 = file_sha256(TINY_TFLITE)
    task = MeasureTask(
        task_id="sweep/cell/0/0",
        artifact_path=str(TINY_TFLITE),
        artifact_sha256=sha256,
        execution=Execution(runtime=Runtime.TFLITE, backend="xnnpack", affinity=(4, 5)),
        policy=QUICK,
        limits=RepeatLimits(timeout_s=30.0),
    )
    return replace(task, **changes)


def make_canary(reference_ns: int, **changes: bool) -> CanaryTask:
    canary = CanaryTask(
        artifact_path=str(TINY_TFLITE),
        artifact_sha256=file_sha256(TINY_TFLITE),
        affinity=None,
        reference_ns=reference_ns,
        spread=None,
        runs_before=False,
        runs_after=False,
    )
    return replace(canary, **changes)


def wait_until_back(phone: Phone, limit_s: float) -> None:
    """Waits for a phone that was lost for a moment."""
    when_back(phone, lambda _: None, limit_s)


def failure_of(seen: Measurement) -> Failure:
    """The failure, complete."""
    assert seen.status is Status.FAILED
    assert seen.failure is not None
    assert seen.failure.message
    assert seen.failure.remedy
    assert seen.origin is Origin.VIRTUAL
    return seen.failure


def assert_good(seen: Measurement, bench: AdbBench) -> None:
    """A row to count, and nothing left on the phone."""
    assert seen.status is Status.OK, seen.failure
    assert seen.summary is not None
    assert seen.origin is Origin.VIRTUAL
    assert leftovers(bench.farmed.folder) == []


def wait_until_it_runs(bench: AdbBench) -> None:
    end_s = time.monotonic() + 20
    while not (bench.farmed.folder / PID).exists():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def measure_patiently(agent: AndroidAgent, task: MeasureTask) -> Measurement:
    """As the scheduler does: after a cut adb needs a moment to see the phone again."""
    return measure_when_fit(agent, task, print)


def adb_of_the_wheel() -> Path:
    """Skips the test without the library."""
    spec = importlib.util.find_spec("adbutils")
    if spec is None or spec.origin is None:
        pytest.skip("adbutils is not installed")
    return Path(spec.origin).parent / "binaries/adb"
