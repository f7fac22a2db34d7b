"""Damages a small workspace, one damage at a time: who notices, and which rows are left.

Every third damage exchanges files between its two sweeps. After each, the workspace is repaired
and merged into another one: no row may be lost or be there twice.

`python tests/makers/damage.py FOLDER N` runs N damages and prints the counts.
"""

import contextlib
import io
import itertools
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import polars as pl
from fleet_rows import NETS, PLACES, write_results

from fleetrank.analysis.stored.columns import ORIGINS, ROW_KEY
from fleetrank.analysis.stored.exclusions import read_exclusions
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.part_list import list_path
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.housekeeping import Step, copy_sweep, plan_merge
from fleetrank.orchestrator.store import journal
from fleetrank.orchestrator.store.health import examine, repair_sweep
from fleetrank.orchestrator.store.journal import make_line
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import exclude
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
    Registration,
    read_device_files,
    save_device,
)
from fleetrank.orchestrator.workspace.workspace import Workspace

LINES, PACKED = "lines-20260102T030405-0a1b", "packed-20260103T030405-0a1b"
SWEEPS = (LINES, PACKED)
SILENT, CRASHED, HARMLESS, WARNED = "SILENT", "CRASHED", "harmless", "warned"
VERIFIED, REFUSED = "verify", "refused"
LOST, DOUBLED, LEFT, APART = "LOST", "DOUBLED", "FAULTS LEFT", "NOT THE SAME"
BETWEEN = "between sweeps"
BAD = (SILENT, CRASHED, LOST, DOUBLED, LEFT, APART)
N_ROWS = 12
"""Of each sweep."""
RECORD = {
    "state": "finished", "started_utc": "2026-01-02T03:04:05+00:00", "n_ok": N_ROWS, "n_failed": 0,
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
    """Two sweeps, one with a packed journal, an exclusion and a phone."""
    workspace = Workspace(root)
    for folder in ("sweeps", "devices", "cards"):
        (root / folder).mkdir(parents=True)
    (root / "cluster.yaml").write_text("cluster_name: t\n")
    store = ResultStore(workspace.results)
    for number, sweep_id in enumerate(SWEEPS):
        store.create_sweep(SweepRecord.model_validate({"sweep_id": sweep_id} | RECORD))
        with store.open_journal(sweep_id) as opened:
            for row in _rows(root / "made", sweep_id, number):
                opened.append(row)
        store.publish(sweep_id)
    size, journal.WORTH_PACKING_BYTES = journal.WORTH_PACKING_BYTES, 0
    assert store.open_journal(PACKED).pack()
    journal.WORTH_PACKING_BYTES = size
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
    places = ("journal/*", "measurements/*/*.parquet", "sweeps/*.parts", "sweeps/*.json", "*.json")
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


@dataclass(frozen=True, slots=True)
class Bench:
    """A workspace that is damaged, and the one that its sweeps are merged into.

    Attributes:
        other: holds `LINES`, undamaged; `PACKED` is copied into it.
        files: by workspace its files, to have them again after a damage.
    """

    workspace: Workspace
    other: Workspace
    files: dict[Workspace, dict[Path, bytes]] = field(default_factory=dict)

    @property
    def stores(self) -> tuple[ResultStore, ResultStore]:
        return ResultStore(self.workspace.results), ResultStore(self.other.results)

    def restore(self, workspace: Workspace) -> None:
        """All files of a workspace as they were."""
        for path in workspace.root.rglob("*"):
            if path.is_file() and path not in self.files[workspace]:
                path.unlink()
        for path, content in self.files[workspace].items():
            _write(path, content)

    def restore_small_files(self) -> None:
        """What a person restores from a copy of the damaged workspace."""
        for path, content in self.files[self.workspace].items():
            if path.suffix not in (".jsonl", ".gz", ".parquet", ".parts"):
                _write(path, content)


def _write(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def make_bench(root: Path) -> Bench:
    """A workspace to damage; only the first of its sweeps is in the other one, too."""
    bench = Bench(make_workspace(root / "ws"), Workspace(root / "other"))
    own, other = bench.stores
    copy_sweep(other, own, LINES)
    for each in (bench.workspace, bench.other):
        paths = (path for path in each.root.rglob("*") if path.is_file())
        bench.files[each] = {path: path.read_bytes() for path in paths}
    return bench


def exchanged(workspace: Workspace, chance: random.Random) -> str:
    """Exchanges or adds files between the two sweeps; returns the kind of damage."""
    store = ResultStore(workspace.results)
    one, two = chance.sample(SWEEPS, 2)
    mine, other_journal = (store.open_journal(sweep_id) for sweep_id in (one, two))
    part, other_part = (next(store.parts_folder(each).glob("*.parquet")) for each in (one, two))
    record, other_record = store.record_path(one), store.record_path(two)
    kind = chance.choice(
        ("parts", "lists", "journals", "lines appended", "lines appended", "some lines appended",
         "journal added", "part added", "part copied over", "records")
    )  # fmt: skip
    if kind == "parts":
        _exchange(part, other_part)
    elif kind == "records":
        _exchange(record, other_record)
    elif kind == "lists":
        _exchange(list_path(store.root, one), list_path(store.root, two))
    elif kind == "journals":
        _exchange(mine.path, other_journal.path)
        _exchange(mine.packed_path, other_journal.packed_path)
    elif kind == "journal added":
        for source, target in (
            (mine.path, other_journal.path),
            (mine.packed_path, other_journal.packed_path),
        ):
            if source.exists():
                target.write_bytes(source.read_bytes())
    elif kind == "part added":
        number = chance.choice((N_ROWS // 2, N_ROWS, 1000))
        other_part.with_name(f"part-{number:012d}.parquet").write_bytes(part.read_bytes())
    elif kind == "part copied over":
        other_part.write_bytes(part.read_bytes())
    else:
        lines = [make_line(row) for row in mine.rows()]
        n_lines = len(lines) if kind == "lines appended" else chance.randrange(1, len(lines))
        with other_journal.path.open("ab") as file:
            file.writelines(lines[:n_lines])
    return kind


def _exchange(one: Path, two: Path) -> None:
    contents = [path.read_bytes() if path.exists() else None for path in (two, one)]
    for path, content in zip((one, two), contents, strict=True):
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)


def campaign(bench: Bench, n: int, seed: int = 0) -> Counter[tuple[str, str, str]]:
    """Makes one damage after the other; counts (file's kind, damage's kind, how it ended)."""
    chance = random.Random(seed)
    workspace = bench.workspace
    before = _seen(workspace)
    if _outcome(workspace, before) != HARMLESS:
        raise ValueError("the workspace is damaged before anything was done")
    files = itertools.cycle(files_of(workspace))
    counts: Counter[tuple[str, str, str]] = Counter()
    for number in range(n):
        try:
            where, kind = _damage(workspace, next(files) if number % 3 else None, chance)
            outcome = _outcome(workspace, before)
            if outcome not in BAD:
                wrong = _wrong_merge(bench, before.rows) if number % 2 else None
                outcome = wrong or _settled(bench, before.rows) or outcome
        finally:
            bench.restore(workspace)
            bench.restore(bench.other)
        if outcome in BAD:
            print(f"{outcome}: damage {number}, {kind} in {where}", file=sys.stderr)
        counts[where, kind, outcome] += 1
    return counts


def _damage(workspace: Workspace, path: Path | None, chance: random.Random) -> tuple[str, str]:
    if path is None:
        return BETWEEN, exchanged(workspace, chance)
    content = path.read_bytes()
    kind, broken = damaged(content, chance)
    while broken == content:
        kind, broken = damaged(content, chance)
    path.write_bytes(broken)
    return _kind(path), kind


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


def _wrong_merge(bench: Bench, rows: pl.DataFrame) -> str | None:
    """Merges the damaged workspace; returns what is wrong with the rows, if any was copied."""
    try:
        _merge(bench)
        copied = rows.filter(pl.col("sweep_id").is_in(bench.stores[1].sweep_ids()))
        return _fate(bench.other, copied)
    except FleetError:
        return None
    finally:
        bench.restore(bench.other)


def _settled(bench: Bench, rows: pl.DataFrame) -> str | None:
    """Repairs and merges the workspace; returns what is wrong with the rows, if any."""
    # A small file has no second copy: repair what is possible, restore it, repair again.
    are_left = True
    with contextlib.suppress(FleetError):
        are_left = _repair(bench.workspace)
    bench.restore_small_files()
    if are_left and _repair(bench.workspace):
        return LEFT
    if (fate := _fate(bench.workspace, rows)) is not None:
        return fate
    return APART if _merge(bench) != [Step.SKIP, Step.COPY] else _fate(bench.other, rows)


def _repair(workspace: Workspace) -> bool:
    """Does what the commands do that the messages name; returns whether faults are left."""
    store = ResultStore(workspace.results)
    for sweep_id in SWEEPS:
        repair_sweep(store, sweep_id)
        store.open_journal(sweep_id).pack()
    return any(examine(store, sweep_id) for sweep_id in SWEEPS)


def _merge(bench: Bench) -> list[Step]:
    own, other = bench.stores
    plan = plan_merge(other, own)
    for one in plan:
        if one.step is Step.COPY:
            copy_sweep(other, own, one.sweep_id)
    return [one.step for one in plan]


def _fate(workspace: Workspace, rows: pl.DataFrame) -> str | None:
    found = load_measurements(workspace.results, origins=ORIGINS).collect()
    if found.select(ROW_KEY).is_duplicated().any():
        return DOUBLED
    return None if found.sort(ROW_KEY).equals(rows.sort(ROW_KEY)) else LOST


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
        row for sweep_id in SWEEPS for row in store.open_journal(sweep_id).rows()
    ]
    records = [store.sweep_record(sweep_id) for sweep_id in SWEEPS]
    rest = (records, read_exclusions(store.root), read_device_files(workspace))
    return Seen(rows=frame, journals=journals, rest=rest)


def _rows(folder: Path, sweep_id: str, seed: int) -> list[dict[str, object]]:
    results = write_results(
        folder / sweep_id, nets=NETS[:3], places=PLACES[:2], repeats=2, n_samples=20,
        sweep=sweep_id, seed=seed,
    )  # fmt: skip
    (part,) = results.glob("measurements/*/*.parquet")
    rows = pl.read_parquet(part, hive_partitioning=False).to_dicts()
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _kind(path: Path) -> str:
    names: Sequence[tuple[str, Callable[[], bool]]] = (
        ("packed journal", lambda: path.suffix == ".gz"),
        ("journal", lambda: path.parent.name == "journal"),
        ("part", lambda: path.suffix == ".parquet"),
        ("list of parts", lambda: path.suffix == ".parts"),
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
    print(table(campaign(make_bench(Path(sys.argv[1])), int(sys.argv[2]))))
