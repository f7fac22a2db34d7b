"""A sweep of this host's CPU and three virtual phones, one of them hot and one unplugged.

The hot phone is warm after each of its repeats; the other is unplugged after its first repeat and
comes back after a while. Printed: the wall time of the sweep, and of each device its first start,
its last end and its longest wait. A phone that waits holds back no other device, so the sweep takes
about as long as its slowest device.

Takes two minutes on two cores.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fault_run import end_server, free_port, make_workspace, register, use_private_home
from phone_farm.farm import FarmSpec, VirtualFarm
from phone_farm.faults import Fault

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.orchestrator.progress_events import DeviceWaits, Event, RepeatFinished, RepeatStarted
from fleetrank.orchestrator.progress_words import sentence
from fleetrank.orchestrator.sweep.sweep_run import run_sweep
from fleetrank.orchestrator.sweep.sweep_session import RunOptions
from fleetrank.orchestrator.workspace.workspace import Workspace

SPEC = """name: mixed
models: {models}
runtimes: [tflite]
devices: [local-cpu, phone-00, phone-01, phone-02]
repeats: {repeats}
measure: {{min_runs: 20, max_time_s: {measure_s}}}
"""


@dataclass
class Lanes:
    """When each device started and ended its repeats, and how long it waited."""

    on_end: Callable[[str, int], None]
    started_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ended_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    waited_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waits_since_s: dict[str, float] = field(default_factory=dict)
    since_s: float = field(default_factory=time.perf_counter)

    def __call__(self, event: Event) -> None:
        """Takes one event of the sweep."""
        now_s = time.perf_counter() - self.since_s
        if isinstance(event, RepeatStarted | RepeatFinished):
            waited_s = now_s - self.waits_since_s.pop(event.device, now_s)
            self.waited_s[event.device] = max(self.waited_s[event.device], waited_s)
        if isinstance(event, RepeatStarted):
            self.started_s[event.device].append(now_s)
        elif isinstance(event, RepeatFinished):
            self.ended_s[event.device].append(now_s)
            self.on_end(event.device, len(self.ended_s[event.device]))
        elif isinstance(event, DeviceWaits):
            self.waits_since_s.setdefault(event.device, now_s - event.waited_s)
            if event.is_news:
                print(f"  {now_s:6.1f} s  {sentence(event)}")

    def report(self) -> None:
        """Prints one line for each device."""
        print("device            repeats  first start  last end  longest wait")
        for device, ended_s in sorted(self.ended_s.items()):
            print(
                f"{device:<16} {len(ended_s):>8} {self.started_s[device][0]:>11.1f} s"
                f" {ended_s[-1]:>7.1f} s {self.waited_s[device]:>11.1f} s"
            )
        print(f"the sweep took {max(ended[-1] for ended in self.ended_s.values()):.1f} s")


def main() -> int:
    """Runs the sweep and prints what it took."""
    asked = read_arguments()
    with tempfile.TemporaryDirectory(prefix="fleetrank-mixed-") as name:
        folder = Path(name)
        use_private_home(folder)
        server = AdbServer(port=free_port())
        server.start()
        try:
            lanes = run(asked, folder, server)
        finally:
            end_server(server)
    print(f"phone-00 cools for {asked.cool_s:g} s after each repeat")
    back = "until the CPU is done" if asked.back_s is None else f"for {asked.back_s:g} s"
    print(f"phone-01 is unplugged after its first repeat, {back}")
    lanes.report()
    n_ended = [len(ended_s) for ended_s in lanes.ended_s.values()]
    return 0 if n_ended == [asked.models * asked.repeats] * 4 else 1


def run(asked: argparse.Namespace, folder: Path, server: AdbServer) -> Lanes:
    """Everything between the start and the end of the adb server."""
    spec = FarmSpec(folder=folder / "phones", count=3)
    with VirtualFarm(spec) as farm:
        workspace = make_workspace(folder / "workspace", asked.models)
        names = register(workspace, server, farm.phones, boot_limit_s=600.0, max_wait_s=600.0)
        farm.inject(0, Fault.WARMS_UP, asked.cool_s)

        def plug(device: str, n_ended: int) -> None:
            if device == names[1] and n_ended == 1:
                farm.inject(1, Fault.OFFLINE, asked.back_s)
            is_cpu_done = device not in names and n_ended == asked.models * asked.repeats
            if is_cpu_done and asked.back_s is None:
                farm.clear(1, Fault.OFFLINE)

        lanes = Lanes(plug)
        sweep(workspace, asked, lanes)
    return lanes


def sweep(workspace: Workspace, asked: argparse.Namespace, lanes: Lanes) -> None:
    """Runs the sweep in this process."""
    models = [f"m{number}" for number in range(asked.models)]
    path = workspace.sweeps / "mixed.yaml"
    text = SPEC.format(models=models, repeats=asked.repeats, measure_s=asked.measure_s)
    path.write_text(text, encoding="utf-8")
    run_sweep(workspace, path, RunOptions(is_inline=True, subscribers=(lanes,)))


def read_arguments() -> argparse.Namespace:
    """How long each thing takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--measure-s", type=float, default=2.0, help="of one repeat")
    parser.add_argument("--cool-s", type=float, default=15.0)
    parser.add_argument("--back-s", type=float, help="if not given: when the CPU is done")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
