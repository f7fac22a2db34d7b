"""A card, a cell and a row that tests of the orchestrator vary; a board, and a server of adb."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tiny_onnx import save_tiny_onnx

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Conditions, Measurement, WorkerFacts
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import (
    Family,
    Flag,
    FlopsMethod,
    Format,
    MemoryMetric,
    Origin,
    Runtime,
    Status,
    Tier,
)
from fleetrank.models.cards.card import Artifact, Cost, ExportRequest, ModelCard, Source, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.orchestrator.identity import Attempt, Cell, DevicePlace, Repeat, SweepFacts
from fleetrank.orchestrator.row_making import RowMaker
from fleetrank.orchestrator.rows import Row

if TYPE_CHECKING:
    from ssh_board import SshBoard
    from world import World

    from fleetrank.device_agents.android.adb_server import AdbServer

CARD = ModelCard(
    name="resnet18",
    family=Family.STANDARD_CNN,
    source=Source.TORCHVISION,
    entry="resnet18",
    weights_tag="IMAGENET1K_V1",
    accuracy_top1=69.758,
    accuracy_source="torchvision",
)
EXECUTION = Execution(runtime=Runtime.ONNX, backend="cpu", threads=2, affinity=(0, 1))
CELL = Cell(
    cell_key="0123456789abcdef",
    platform_key="box/onnx/cpu/eager/fp32/b1/t2/a0,1/{}",
    device="box",
    export=ExportRequest(model=resolve(CARD), weights=Weights(), format=Format.ONNX),
    execution=EXECUTION,
)
ARTIFACT = Artifact(
    path="/artifacts/aa.onnx",
    sha256="aa",
    size_bytes=44,
    format=Format.ONNX,
    cost=Cost(macs=10, parameters=5, method=FlopsMethod.COUNTED),
    versions=(("onnx", "1.23.2"), ("torch", "2.13.0")),
    max_relative_error=1e-6,
    is_trusted=True,
)
FACTS = DeviceFacts(
    device_model="Box 1",
    tier=Tier.CPU,
    origin=Origin.MEASURED,
    os="Linux 6",
    arch="x86_64",
    cpu_model="Box CPU",
    logical_cores=2,
    governor="performance",
    clock_max_mhz=3000.0,
)
MEASUREMENT = Measurement(
    task_id="t",
    status=Status.OK,
    origin=Origin.MEASURED,
    load_ns=7,
    samples_ns=(10, 20, 30, 40),
    memory_metric=MemoryMetric.VMHWM_GROWTH,
    run_peak_memory_bytes=1000,
    conditions_before=Conditions(load_1min=0.5),
    worker=WorkerFacts(
        runtime_version="1.31",
        settings=(("threads", 2),),
        affinity=(0, 2),
        niceness=0,
        confinement="landlock7+seccomp+audit",
    ),
    flags=(Flag.DRIFT,),
    started_utc="2026-01-02T03:04:05.000006+00:00",
    finished_utc="2026-01-02T03:04:07.000006+00:00",
)
SWEEP = SweepFacts(
    sweep_id="quick-20260102T030405-0a1b",
    seed=0,
    fleetrank_version="0.1.0",
    git_commit=None,
)

FIRST = Attempt(repeat=Repeat(cell=CELL, index=0), number=0)
PLACE = DevicePlace(device=CELL.device, host="here", host_hash="0123456789ab", needs_quiet=True)

Translate = Callable[..., Row]


@pytest.fixture
def first() -> Attempt:
    """The first attempt at the first repeat, whose row `translate` makes."""
    return FIRST


@pytest.fixture
def translate() -> Translate:
    """Makes the row of a good repeat; keyword arguments replace what it is made of."""

    def build(**changes: object) -> Row:
        parts = {
            "sweep": SWEEP,
            "attempt": FIRST,
            "measurement": MEASUREMENT,
            "place": PLACE,
            "facts": FACTS,
            "artifact": ARTIFACT,
        } | changes
        attempt = parts["attempt"]
        cell, artifacts = attempt.repeat.cell, {attempt.repeat.cell.export: parts["artifact"]}
        maker = RowMaker(parts["sweep"], [cell], {"d": parts["place"]}, artifacts)
        return maker.row(attempt, parts["measurement"], "d", parts["facts"])

    return build


@pytest.fixture
def new_row(translate: Translate) -> Translate:
    """A complete row; keyword arguments replace columns."""
    base = translate()

    def build(**changes: object) -> Row:
        assert set(changes) <= set(base)
        return base | changes

    return build


@pytest.fixture(scope="session")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 3 x 3 convolution over 16 x 16 pixels: exported, verified and measured in no time."""
    return save_tiny_onnx(tmp_path_factory.mktemp("onnx") / "tiny.onnx")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> "World":
    """Five measured sweeps; a test that writes takes a copy."""
    from world import shared_world

    base = tmp_path_factory.getbasetemp()
    return shared_world(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Iterator["SshBoard"]:
    from ssh_board import ssh_board

    with tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True) as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        with ssh_board() as found:
            yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["AdbServer"]:
    from adb_bench import private_server

    from fleetrank.device_agents.android.adb_server import find_adb
    from fleetrank.device_agents.errors import MissingLibraryError

    try:
        adb = find_adb()
    except MissingLibraryError:
        pytest.skip("no adb was found")
    home = tmp_path_factory.mktemp("home")
    with private_server(adb, home) as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(started.port))
        yield started
