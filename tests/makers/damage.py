"""Damages the files of a small workspace, one at a time, and says who notices.

`python tests/makers/damage.py FOLDER N` runs N damages and prints the counts.
"""

import contextlib
import io
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl
from fleet_rows import NETS, PLACES, write_results

from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.exclusions import read_exclusions
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.store.exclusions import exclude
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
    Registration,
    read_device_files,
    save_device,
)
from fleetrank.orchestrator.workspace.workspace import Workspace

LINES, PACKED = "lines-20260102T030405-0a1b", "packed-20260103T030405-0a1b"
SILENT, CRASHED, HARMLESS, WARNED = "SILENT", "CRASHED", "harmless", "warned"
VERIFIED, REFUSED = "verify", "refused"
RECORD = {
    "state": "finished", "started_utc": "2026-01-02T03:04:05+00:00", "n_ok": 24, "n_failed": 0,
    "n_left": 0, "command_line": "fleetrank sweep run sweeps/quick.yaml",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What all readers of a workspace return."""

    rows: pl.DataFrame
    journals: list[object]
    rest: tuple[object, ...]

    def is_same(self, other: "Seen") -> bool:
        return (
            self.rows.equals(other.rows)
            and repr(self.journals) == repr(other.journals)
            and self.rest == other.rest
        )


def make_workspace(root: Path) -> Workspace:
    """Two sweeps, one with a packed journal where that exists, an exclusion and a phone."""
    workspace = Workspace(root)
    for folder in ("sweeps", "devices", "cards"):
        (root / folder).mkdir(parents=True)
    (root / "cluster.yaml").write_text("cluster_name: t\n")
    store = ResultStore(workspace.results)
    for number, sweep_id in enumerate((LINES, PACKED)):
        store.create_sweep(SweepRecord.model_validate({"sweep_id": sweep_id} | RECORD))
        with store.open_journal(sweep_id) as journal:
            for row in _rows(root / "made", sweep_id, number):
                journal.append(row)
        store.publish(sweep_id)
    if hasattr(store, "pack_journal"):
        from fleetrank.orchestrator.store.journals import journal_pack

        size, journal_pack.WORTH_PACKING_BYTES = journal_pack.WORTH_PACKING_BYTES, 0
        assert store.pack_journal(PACKED)
        journal_pack.WORTH_PACKING_BYTES = size
    exclude(store.root, LINES, "resnet18", "a person walked past")
    found = Registration(
        registered_utc="2026-01-02T03:04:05+00:00",
        facts={"model": "Pixel 7", "release": 14, "has_taskset": True},
        clusters=((6, 7), (0, 1, 2, 3)),
        canary_latency_ns=(8_123_456, 8_234_567),
    )
    save_device(
        workspace,
        DeviceFile(name="pixel-7", kind="android", options={"serial": "X1"}, registration=found),
    )
    return workspace


def files_of(workspace: Workspace) -> list[Path]:
    """The files that are damaged, in a stable order."""
    places = ("journal/*", "measurements/*/*.parquet", "sweeps/*.json", "*.json")
    stored = [path for place in places for path in sorted(workspace.results.glob(place))]
    return [*stored, *sorted(workspace.devices.glob("*.yaml"))]


def damaged(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    """One damage, and its kind."""
    kind = chance.choice(("flip", "flip", "flip", "cut", "end cut", "insertion", "zeros"))
    at = chance.randrange(len(content))
    size = chance.choice((1, 2, 7, 64, 512))
    if kind == "flip":
        bit = 1 << chance.randrange(8)
        return kind, content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
    if kind == "cut":
        return kind, content[:at] + content[at + size :]
    if kind == "end cut":
        return kind, content[:at]
    if kind == "insertion":
        return kind, content[:at] + chance.randbytes(size) + content[at:]
    end = min(len(content), at + size)
    return kind, content[:at] + bytes(end - at) + content[end:]


def campaign(workspace: Workspace, n: int, seed: int = 0) -> Counter[tuple[str, str, str]]:
    """Damages one file after the other; counts (file's kind, damage's kind, who notices)."""
    chance = random.Random(seed)
    before = _seen(workspace)
    if _outcome(workspace, before) != HARMLESS:
        raise ValueError("the workspace is damaged before anything was done")
    files = files_of(workspace)
    counts: Counter[tuple[str, str, str]] = Counter()
    for number in range(n):
        path = files[number % len(files)]
        content = path.read_bytes()
        kind, broken = damaged(content, chance)
        if broken == content:
            counts[_kind(path), kind, "no change"] += 1
            continue
        path.write_bytes(broken)
        try:
            outcome = _outcome(workspace, before)
        finally:
            path.write_bytes(content)
        if outcome in (SILENT, CRASHED):
            print(f"{outcome}: damage {number}, {kind} in {path}", file=sys.stderr)
        counts[_kind(path), kind, outcome] += 1
    return counts


def _outcome(workspace: Workspace, before: Seen) -> str:
    said = _said_by_command(workspace, ["results", "verify"], VERIFIED)
    if said := said or _said_by_command(workspace, ["devices", "list"], REFUSED):
        return said
    try:
        after = _seen(workspace)
    except (FleetError, pl.exceptions.PolarsError):
        # The command line explains what a library raises of a damaged part.
        return REFUSED
    except (Exception, pl.exceptions.PanicException):
        return CRASHED
    return HARMLESS if before.is_same(after) else SILENT


def _said_by_command(workspace: Workspace, command: Sequence[str], outcome: str) -> str | None:
    try:
        code, said = _run(["--workspace", str(workspace.root), *command])
    except pl.exceptions.PanicException:
        return CRASHED
    if "--debug shows the traceback" in said:
        return CRASHED
    if "differs from what fleetrank wrote" in said:
        return WARNED
    return outcome if code else None


def _run(arguments: Sequence[str]) -> tuple[int, str]:
    said = io.StringIO()
    # Warnings are logged, and a process sets its log up once.
    listener = logging.StreamHandler(said)
    logging.getLogger().addHandler(listener)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = run(list(arguments))
        return code, said.getvalue()
    finally:
        logging.getLogger().removeHandler(listener)


def _seen(workspace: Workspace) -> Seen:
    store = ResultStore(workspace.results)
    frame = load_measurements(store.root, origins=ORIGINS).collect()
    journals: list[object] = [
        row for sweep_id in (LINES, PACKED) for row in store.open_journal(sweep_id).rows()
    ]
    records = [store.sweep_record(sweep_id) for sweep_id in (LINES, PACKED)]
    rest = (records, read_exclusions(store.root), read_device_files(workspace))
    return Seen(rows=frame, journals=journals, rest=rest)


def _rows(folder: Path, sweep_id: str, seed: int) -> list[dict[str, object]]:
    results = write_results(
        folder / sweep_id, nets=NETS[:4], places=PLACES[:2], repeats=3, n_samples=20,
        sweep=sweep_id, seed=seed,
    )  # fmt: skip
    (part,) = results.glob("measurements/*/*.parquet")
    rows = pl.read_parquet(part, hive_partitioning=False).to_dicts()
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _kind(path: Path) -> str:
    names: Sequence[tuple[str, Callable[[], bool]]] = (
        ("packed journal", lambda: path.parent.name == "journal" and path.suffix == ".parquet"),
        ("journal", lambda: path.parent.name == "journal"),
        ("part", lambda: path.suffix == ".parquet"),
        ("device file", lambda: path.suffix == ".yaml"),
        ("record", lambda: path.parent.name == "sweeps"),
    )
    return next((name for name, is_it in names if is_it()), path.name)


def table(counts: Counter[tuple[str, str, str]]) -> str:
    """Files by rows, outcomes by columns."""
    outcomes = sorted({outcome for _, _, outcome in counts})
    lines = [f"{'':18}" + "".join(f"{outcome:>12}" for outcome in outcomes)]
    for kind in [*sorted({file for file, _, _ in counts}), "all"]:
        cells = (
            sum(
                n
                for (file, _, end), n in counts.items()
                if end == outcome and kind in (file, "all")
            )
            for outcome in outcomes
        )
        lines.append(f"{kind:18}" + "".join(f"{n:12,}" for n in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    made = make_workspace(Path(sys.argv[1]))
    print(table(campaign(made, int(sys.argv[2]))))
