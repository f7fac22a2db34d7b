"""The processes that `orchestration.py` runs in turn: one side of it each, a JSON line as answer.

    python -P orchestration_sides.py ours|bare|publish|resume FOLDER ADDRESS REPEATS [PROFILE]

FOLDER is a workspace with the device files, ADDRESS that of the cluster. `-P`, since Ray hands a
script's folder to its workers, and analysis.py in this one would hide the package of its name.
"""

import contextlib
import cProfile
import hashlib
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from fleetrank.analysis.stored.sweep_record import SweepRecord, SweepState
from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.hosts.messages import DeviceSpec
from fleetrank.device_agents.registry import create_agent
from fleetrank.foundation.vocabulary import FlopsMethod, Format
from fleetrank.models.cards.card import Artifact, Cost
from fleetrank.orchestrator.dispatch.controller import Controller, Recorder
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import Exports, SweepWork, task_of
from fleetrank.orchestrator.dispatch.ray_cluster import cluster_ray
from fleetrank.orchestrator.dispatch.ray_hosts import LABEL
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.identity import Attempt
from fleetrank.orchestrator.progress import Publisher
from fleetrank.orchestrator.progress_file import ProgressFile
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import JournalSink
from fleetrank.orchestrator.sweep.dispatch_backend import DispatchBackend, open_dispatch_backend
from fleetrank.orchestrator.sweep.fleet import Fleet
from fleetrank.orchestrator.sweep.sweep_setup import Setup, plan_sweep
from fleetrank.orchestrator.workspace.provenance import sweep_facts
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace

if TYPE_CHECKING:
    import ray

SHAPES = {10**3: (1, 1), 10**4: (2, 5), 10**5: (10, 10)}
"""Repeats in all, on a thousand devices, to (models, repeats of a cell)."""
SWEEP = "scale-20260101T000000-0000"
BATCH = 125
"""Tasks in one call of the bare loop, each for a device of its own."""
MODELS = (
    "resnet18", "resnet50", "densenet121", "mobilenet_v2", "mobilenet_v3_large", "mnasnet1_0",
    "squeezenet1_1", "efficientnet_b0", "inception_v3", "deit_tiny",
)  # fmt: skip
Figures = dict[str, float]
Batch = Sequence[tuple[DeviceSpec, MeasureTask]]


def main() -> None:
    """Runs what is named and prints its figures."""
    name, folder, address, repeats, *profile = sys.argv[1:]
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    print(json.dumps(STEPS[name](Path(folder), address, int(repeats))))
    if profile:
        profiler.dump_stats(profile[0])


class Stopwatch:
    """Wall time, and computing time: of this driver, and with it of all hosts' processes.

    Computing time holds on a busy machine too.
    """

    def __init__(self) -> None:
        self._wall_s, self._driver_s, self._all_s = _clocks()

    def figures(self) -> Figures:
        """Seconds since it was made."""
        wall_s, driver_s, all_s = _clocks()
        return {
            "seconds": wall_s - self._wall_s,
            "driver_s": driver_s - self._driver_s,
            "all_s": all_s - self._all_s,
        }


def _clocks() -> tuple[float, float, float]:
    """Raylets, their actors and this process all descend from the one that compares."""
    all_s = 0.0
    for process in psutil.Process(os.getppid()).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            all_s += times.user + times.system
    return time.perf_counter(), time.process_time(), all_s


def ours(folder: Path, address: str, repeats: int) -> Figures:
    """A sweep from its plan to its last synced row."""
    store = ResultStore(folder / "results")
    with open_dispatch_backend(
        Workspace(folder), cluster=address, is_inline=False, emit=print
    ) as backend:
        started_s = time.perf_counter()
        setup = planned(folder, backend.fleet, repeats)
        plan_s = time.perf_counter() - started_s
        store.create_sweep(SweepRecord(sweep_id=SWEEP, state=SweepState.RUNNING))
        figures, tally = conduct(folder, backend, setup, store)
    if tally.n_ok != repeats:
        raise SystemExit(f"{tally.n_ok} of {repeats} repeats were measured")
    return figures | {"plan_s": plan_s, "peak_mb": peak_bytes() / 1e6}


def conduct(
    folder: Path, backend: DispatchBackend, setup: Setup, store: ResultStore
) -> tuple[Figures, Tally]:
    """What the controller's loop took, and what came of it."""
    tally = Tally()
    with (
        backend.open_hosts(SWEEP, setup) as hosts,
        store.open_journal(SWEEP) as journal,
    ):
        work = work_of(folder, setup)
        emit = Publisher([ProgressFile(store.progress_path(SWEEP))])
        recorder = Recorder(work, JournalSink(store, journal), emit)
        controller = Controller(work, tally, hosts=hosts, recorder=recorder, switch=StopSwitch())
        stopwatch = Stopwatch()
        controller.run()
        return stopwatch.figures(), tally


class BareHost:
    """An actor that measures a batch side by side and keeps nothing."""

    def __init__(self) -> None:
        self._agents: dict[DeviceSpec, Agent] = {}
        self._pool = ThreadPoolExecutor(2 * BATCH)

    def run(self, batch: Batch) -> list[Measurement]:
        """Measures one task on each device."""
        return list(self._pool.map(self._measure, batch))

    def _measure(self, item: tuple[DeviceSpec, MeasureTask]) -> Measurement:
        spec, task = item
        if spec not in self._agents:
            self._agents[spec] = create_agent(spec.kind, dict(spec.options))
        return self._agents[spec].measure(task)


def bare(folder: Path, address: str, repeats: int) -> Figures:
    """The loop one would write: batches out, batches back, nothing kept; each device one task."""
    import ray

    setup = planned(folder, Fleet(here=None, is_cluster=True), repeats)
    lanes = batches_of(setup, work_of(folder, setup))
    with cluster_ray(address):
        actors = {host: bare_host(host) for host in sorted({host for host, _ in lanes})}
        ray.get([actor.run.remote([]) for actor in actors.values()])
        stopwatch = Stopwatch()
        n_done = 0
        waiting = {
            actors[host].run.remote(next(batches)): (host, batches) for host, batches in lanes
        }
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            host, batches = waiting.pop(ready[0])
            n_done += len(ray.get(ready[0]))
            if (batch := next(batches, None)) is not None:
                waiting[actors[host].run.remote(batch)] = host, batches
        figures = stopwatch.figures()
    if n_done != repeats:
        raise SystemExit(f"{n_done} of {repeats} repeats were measured")
    return figures


def bare_host(host: str) -> "ray.actor.ActorHandle":
    """The actor of one host."""
    import ray

    options = {"label_selector": {LABEL: host}, "num_cpus": 0, "max_concurrency": 2}
    return ray.remote(BareHost).options(**options).remote()


def batches_of(setup: Setup, work: SweepWork) -> list[tuple[str, Iterator[Batch]]]:
    """The tasks of the sweep, made beforehand: two groups of devices a host, one call at a time."""
    tasks: dict[str, list[tuple[DeviceSpec, MeasureTask]]] = defaultdict(list)
    order = (one for index in range(setup.plan.repeats) for one in setup.plan.order(index))
    for repeat in order:
        spec = setup.devices[repeat.cell.device].spec
        tasks[spec.name].append((spec, task_of(work, Attempt(repeat=repeat, number=0))))
    of_host: dict[str, list[str]] = defaultdict(list)
    for name, place in setup.places.items():
        of_host[place.host].append(name)
    return [
        (host, zip(*(tasks[name] for name in names[start : start + BATCH]), strict=True))
        for start in (0, BATCH)
        for host, names in of_host.items()
    ]


def planned(folder: Path, fleet: Fleet, repeats: int) -> Setup:
    """The sweep over all devices."""
    n_models, n_repeats = SHAPES[repeats]
    spec = SweepSpec.model_validate(
        {
            "name": "scale",
            "models": list(MODELS[:n_models]),
            "runtimes": "onnx",
            "devices": sorted(path.stem for path in Workspace(folder).devices.glob("*.yaml")),
            "repeats": n_repeats,
        }
    )
    return plan_sweep(Workspace(folder), spec, None, fleet)


def work_of(folder: Path, setup: Setup) -> SweepWork:
    """What the export stage would give, with a small file for each model."""
    return SweepWork(
        sweep=sweep_facts(SWEEP, setup.plan.seed, folder),
        plan=setup.plan,
        places=setup.places,
        exports=Exports(
            artifacts={
                cell.export: artifact(folder, cell.export.card.name) for cell in setup.plan.cells
            }
        ),
    )


def artifact(folder: Path, model: str) -> Artifact:
    """A file that no simulated agent opens, and that hosts are sent all the same."""
    sha256 = hashlib.sha256(model.encode()).hexdigest()
    path = folder / "artifacts" / f"{sha256}.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_text(model)
    return Artifact(
        path=str(path),
        sha256=sha256,
        size_bytes=len(model),
        format=Format.ONNX,
        cost=Cost(macs=10**9, parameters=10**7, method=FlopsMethod.COUNTED),
        versions=(),
        max_relative_error=None,
        is_trusted=True,
    )


def publish(folder: Path, _address: str, _repeats: int) -> Figures:
    """Journal to parts, and the journal packed."""
    store = ResultStore(folder / "results")
    started_s = time.perf_counter()
    store.publish(SWEEP)
    published_s = time.perf_counter()
    store.open_journal(SWEEP).pack()
    return {
        "publish_s": published_s - started_s,
        "pack_s": time.perf_counter() - published_s,
        "peak_mb": peak_bytes() / 1e6,
    }


def resume(folder: Path, _address: str, repeats: int) -> Figures:
    """What a resume reads before it goes on."""
    started_s = time.perf_counter()
    with ResultStore(folder / "results").open_journal(SWEEP) as journal:
        tally = Tally.of(journal.rows())
    if tally.n_finished != repeats:
        raise SystemExit(f"{tally.n_finished} of {repeats} repeats were found")
    return {"resume_s": time.perf_counter() - started_s, "peak_mb": peak_bytes() / 1e6}


def peak_bytes() -> int:
    """Of this process alone: `ru_maxrss` would be inherited."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


STEPS: dict[str, Callable[[Path, str, int], Figures]] = {
    "ours": ours, "bare": bare, "publish": publish, "resume": resume,
}  # fmt: skip


if __name__ == "__main__":
    main()
