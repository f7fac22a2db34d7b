"""Does every repeat end as exactly one valid row or one typed failure, whatever phones do?

Twenty virtual phones (canned: they make latencies up) behind one private server of the real adb,
ten small models each, every `Fault` of a virtual phone injected at seeded random times, and
the adb server killed in the middle: one sweep through the ordinary way, journal and Parquet
included. Printed: how many cells, repeats, attempts, good rows and failures by kind, how many
phones measured side by side, and how long the same sweep takes without faults on one phone and on
all. Exits with 1 when a repeat has no end or two, an attempt is stored twice, a failure has no kind
or no remedy, or anything is left on a phone.

Takes two minutes on two cores, `--quick --phones 5 --models 6 --repeats 1` ten seconds.
`--ray` carries the tasks through Ray instead of threads of this process.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from phone_farm.farm import FarmedPhone, FarmSpec, VirtualFarm
from phone_farm.faults import Fault, draw_injections
from phone_farm.imitation.command import stand_in_of, stand_ins
from phone_farm.profile import DEFAULT_PROFILES

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.android.execution.program_files import ProgramFile, file_sha256
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.phone_registration import NewPhone
from fleetrank.device_agents.android.state.identity import probe_phone
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.device_agents.contract.kind import RegistrationData, RegistrationRequest
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.progress_events import Event, RepeatFinished, RepeatStarted
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_run import run_sweep
from fleetrank.orchestrator.sweep.sweep_session import RunOptions
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, Registration, save_device
from fleetrank.orchestrator.workspace.workspace import Workspace

DATA = Path(__file__).parents[1] / "tests" / "device_agents" / "data"
PROGRAMS_SHARE = 4
"""Every fourth model is an ExecuTorch program, the others are TFLite files."""
CARD = (
    'family = "mobile_cnn"\nsource = "file"\nentry = "{file}"\nmacs = 1000000\nparameters = 1000\n'
)
SPEC = """name: {name}
models: {models}
runtimes: [tflite, executorch]
devices: {devices}
repeats: {repeats}
measure: {{min_warmup_s: 0.0, min_warmup_runs: 2, min_runs: 20, max_time_s: 0.2}}
limits: {{timeout_s: 20.0, max_attempts: 6}}
"""
Row = dict[str, object]


@dataclass
class Watch:
    """Counts how many phones measure at the same time."""

    running: set[str] = field(default_factory=set)
    most: int = 0

    def __call__(self, event: Event) -> None:
        """Takes one event of the sweep."""
        if isinstance(event, RepeatStarted):
            self.running.add(event.device)
            self.most = max(self.most, len(self.running))
        elif isinstance(event, RepeatFinished):
            self.running.discard(event.device)


def main() -> int:
    """Runs the sweep and prints what became of it."""
    asked = read_arguments()
    with tempfile.TemporaryDirectory(prefix="fleetrank-faults-") as name:
        folder = Path(name)
        use_private_home(folder)
        server = AdbServer(port=free_port())
        server.start()
        try:
            return run(asked, folder, server)
        finally:
            end_server(server)


def run(asked: argparse.Namespace, folder: Path, server: AdbServer) -> int:
    """Everything between the start and the end of the adb server."""
    profiles = tuple(asked.profile or DEFAULT_PROFILES)
    spec = FarmSpec(folder=folder / "phones", count=asked.phones, profiles=profiles)
    with VirtualFarm(spec) as farm:
        workspace = make_workspace(folder / "workspace", asked.models)
        names = register(workspace, server, farm.phones)
        if not asked.quick:
            for names_used in (names[:1], names):
                seconds, watch = sweep(workspace, f"calm{len(names_used)}", names_used, asked)
                n_repeats = asked.models * asked.repeats * len(names_used)
                print(
                    f"without faults, {len(names_used)} phones: {seconds:.1f} s, "
                    f"{seconds / n_repeats:.3f} s a repeat, at most {watch.most} at once"
                )
        with trouble(asked, farm, server) as struck:
            seconds, watch = sweep(workspace, "faults", names, asked)
        print(f"with {struck()} faults: {seconds:.1f} s, at most {watch.most} phones at once")
        rows = list(rows_of_newest(workspace))
        n_cells = asked.models * len(names)
        return report(
            rows, n_cells, asked.repeats, [left for p in farm.phones for left in left_on(p)]
        )


def report(rows: Sequence[Row], n_cells: int, repeats: int, left: Sequence[str]) -> int:
    """Prints the counts and says what is wrong; the exit code."""
    attempts: dict[tuple[object, object], list[Row]] = defaultdict(list)
    for row in rows:
        attempts[row["cell_key"], row["repeat"]].append(row)
    ends = [max(tries, key=lambda row: int(str(row["attempt"]))) for tries in attempts.values()]
    failed = [row for row in rows if row["status"] != "ok"]
    print(f"cells {n_cells}, repeats {n_cells * repeats}, rows (attempts) {len(rows)}")
    print(f"repeats ok {sum(row['status'] == 'ok' for row in ends)}")
    print(f"repeats failed by kind {dict(Counter(_kind(r) for r in ends if r['status'] != 'ok'))}")
    print(f"attempts failed by kind {dict(Counter(_kind(row) for row in failed))}")
    wrong = [
        *(f"{key} has attempts {_numbers(t)}" for key, t in attempts.items() if not _is_whole(t)),
        *(f"{_kind(row)} is no typed failure" for row in failed if not _is_typed(row)),
        *(f"left on a phone: {path}" for path in left),
    ]
    if len(attempts) != n_cells * repeats:
        wrong.append(f"{len(attempts)} repeats have an end, not {n_cells * repeats}")
    if any(row["origin"] != "virtual" for row in rows):
        wrong.append("a row does not say that a virtual phone made it")
    for line in wrong:
        print(f"WRONG: {line}")
    print("every repeat ended once" if not wrong else "the run shows defects")
    return 1 if wrong else 0


def _kind(row: Row) -> str:
    return str(row["error_kind"])


def _numbers(tries: Sequence[Row]) -> list[object]:
    return sorted((row["attempt"], row["status"]) for row in tries)  # type: ignore[type-var]


def _is_whole(tries: Sequence[Row]) -> bool:
    """Attempts are numbered without gap or double, and nothing was tried after a good one."""
    ordered = sorted(tries, key=lambda row: int(str(row["attempt"])))
    numbers = [row["attempt"] for row in ordered]
    return numbers == list(range(len(ordered))) and all(
        row["status"] != "ok" for row in ordered[:-1]
    )


def _is_typed(row: Row) -> bool:
    return row["error_kind"] in set(ErrorKind) - {ErrorKind.INTERNAL} and bool(row["error_remedy"])


@contextmanager
def trouble(
    asked: argparse.Namespace, farm: VirtualFarm, server: AdbServer
) -> Iterator[Callable[[], int]]:
    """Injects every fault while the block runs; gives how many there were."""
    rng = random.Random(asked.seed)
    injections = draw_injections(
        rng, phones=asked.phones, count=asked.faults, span_s=asked.span_s, faults=list(Fault)
    )
    kills_s = sorted(rng.uniform(0.1, 0.9) * asked.span_s for _ in range(asked.server_kills))
    is_over = threading.Event()

    def kill_servers() -> None:
        started_s = time.perf_counter()
        for kill_s in kills_s:
            if is_over.wait(max(0.0, kill_s - (time.perf_counter() - started_s))):
                return
            end_server(server)

    killer = threading.Thread(target=kill_servers)
    farm.schedule(injections)
    killer.start()
    try:
        yield lambda: len(injections) + len(kills_s)
    finally:
        is_over.set()
        killer.join()


def sweep(
    workspace: Workspace, name: str, devices: Sequence[str], asked: argparse.Namespace
) -> tuple[float, Watch]:
    """Runs one sweep: how long it took and who measured side by side."""
    path = workspace.sweeps / f"{name}.yaml"
    models = [f"m{number}" for number in range(asked.models)]
    text = SPEC.format(name=name, models=models, devices=list(devices), repeats=asked.repeats)
    path.write_text(text, encoding="utf-8")
    watch = Watch()
    started_s = time.perf_counter()
    subscribers = (watch, Talk()) if asked.verbose else (watch,)
    run_sweep(workspace, path, RunOptions(is_inline=not asked.ray, subscribers=subscribers))
    return time.perf_counter() - started_s, watch


class Talk:
    """Prints failures as they come."""

    def __call__(self, event: Event) -> None:
        """Takes one event of the sweep."""
        if isinstance(event, RepeatFinished) and event.error is not None:
            again = "again" if event.will_retry else "for good"
            print(f"  {event.device} {event.label} {event.attempt} {again}: {event.error[:150]}")


def rows_of_newest(workspace: Workspace) -> Iterator[Row]:
    """Every row of the sweep that was run last."""
    store = ResultStore(workspace.results)
    with store.open_journal(store.newest_sweep()) as journal:
        yield from journal.rows()


def make_workspace(folder: Path, n_models: int) -> Workspace:
    """A workspace with small files of the user's own; each has content of its own."""
    workspace = Workspace.init(folder)
    for number in range(n_models):
        name = "tiny.pte" if number % PROGRAMS_SHARE == 3 else "tiny.tflite"
        file = workspace.root / f"m{number}{Path(name).suffix}"
        file.write_bytes((DATA / name).read_bytes() + b"\0" * number)
        card = CARD.format(file=file) + ('precision = "fp32"\n' if file.suffix == ".pte" else "")
        (workspace.cards / f"m{number}.toml").write_text(card, encoding="utf-8")
    return workspace


def register(
    workspace: Workspace,
    server: AdbServer,
    phones: Sequence[FarmedPhone],
    *,
    boot_limit_s: float = 20.0,
    max_wait_s: float = 10.0,
) -> tuple[str, ...]:
    """Writes the phones' device files as `devices add` does, without a canary."""
    tools = {name: file_sha256(stand_in_of(name)) for name in stand_ins()}
    for name, sha256 in tools.items():
        ProgramStore().add(ProgramFile(name=name, path=stand_in_of(name), sha256=sha256))
    names = []
    for number, farmed in enumerate(phones):
        phone = Phone(server, farmed.address)
        phone.connect()
        facts = probe_phone(phone)
        options = {
            "serial": farmed.address,
            "serial_hash": facts.serial_hash or "",
            "virtual": farmed.mode.value,
            "adb_server": f"{server.host}:{server.port}",
            "settle_s": 0.0,
            "boot_limit_s": boot_limit_s,
            "max_wait_s": max_wait_s,
            "poll_s": 0.2,
            **tools,
        }
        names.append(f"phone-{number:02d}")
        request = RegistrationRequest(address=farmed.address)
        met = NewPhone(request=request, found=facts, store=ProgramStore(), say=print)
        clusters = tuple(one.cores for one in met.clusters)
        data = RegistrationData(facts=met.facts, clusters=clusters)
        registration = Registration.of(data)
        device = DeviceFile(
            name=names[-1], kind="android", options=options, registration=registration
        )
        save_device(workspace, device)
    return tuple(names)


def left_on(farmed: FarmedPhone) -> Iterator[str]:
    """What lies on a phone that only a measurement under way may leave there."""
    folder = farmed.folder / FOLDER[1:]
    settings = farmed.folder / ".phone/settings/global"
    found = [folder / "run", folder / "restore.txt", *folder.rglob("*.part"), *settings.iterdir()]
    yield from (str(path.relative_to(farmed.folder.parent)) for path in found if path.exists())


def use_private_home(folder: Path) -> None:
    """Keys, caches and leases of this run lie in its own folder, and no adb of the user is met."""
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    os.environ |= {
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_RUNTIME_DIR": str(runtime),
        "ADB_LIBUSB": "0",
        "ADB_LOCAL_TRANSPORT_MAX_PORT": "5554",
    }


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_server(server: AdbServer) -> None:
    """Ends the private adb server, as its user or a defect of its own might."""
    command = [str(server.adb), "-P", str(server.port), "kill-server"]
    subprocess.run(command, check=False, timeout=30, capture_output=True)


def read_arguments() -> argparse.Namespace:
    """How much of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phones", type=int, default=20)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--server-kills", type=int, default=2)
    parser.add_argument("--span-s", type=float, default=40.0, help="in which the faults strike")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="append")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--quick", action="store_true", help="only the run with faults")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
