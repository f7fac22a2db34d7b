"""The zoo on one NVIDIA GPU: PyTorch eager, compiled and as CUDA graphs, in fp32 and fp16.

Needs PyTorch, torchvision, timm, NumPy and nvidia-ml-py; no Ray, no Polars, no installation:

    PYTHONPATH=build/import python3 benchmarks/gpu_table.py --out gpu-table

exports what is missing and runs it once on the GPU, several at a time, to compare it with the
processor and to have it compiled; then measures one by one, appends one measurement per line to
OUT/rows.jsonl, and prints a table of medians in Markdown, also written to OUT/table.md. What is in
rows.jsonl is not measured again, so that a run that was cut off, or ended itself after `--budget-s`
(exit code 3), goes on; a failed repeat is a line as well, and tried again where that may help.
"""

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from gpu_artifacts import TIMEOUT_S, Artifacts, Cell, default_jobs, prepare

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import MeasurePolicy, MeasureTask, RepeatLimits
from fleetrank.device_agents.cuda.agent import CudaAgent
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import Mode, Precision, Status
from fleetrank.models.cards.zoo import load_zoo

SEED = 0
TRIES = 2
UNFINISHED = 3
"""Exit code when the time was over first."""

COLUMNS = (
    ("wall ms", lambda it: median_ms(it, "samples_ns")),
    ("device ms", lambda it: median_ms(it, "device_samples_ns")),
    ("allocated MB", lambda it: median_of([row.run_peak_memory_bytes for row in it], 1e6)),
    ("reserved MB", lambda it: median_of([row.reserved_memory_bytes for row in it], 1e6)),
    ("mJ", lambda it: median_of([row.energy and row.energy.per_inference_mj for row in it])),
    (
        "mJ above idle",
        lambda it: median_of([row.energy and row.energy.above_idle_mj for row in it]),
    ),
    ("copy us", lambda it: median_of([row.input_copy_ns for row in it], 1e3)),
)


def main() -> int:
    """Exports, verifies, measures round by round in random order, prints."""
    options = read_options()
    options.out.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + options.budget_s
    rows = options.out / "rows.jsonl"
    cells = [
        Cell(model=model, mode=Mode(mode), precision=Precision(precision), batch=options.batch)
        for model in options.models
        for mode in options.modes
        for precision in options.precisions
    ]
    agent = CudaAgent({"others": options.others})
    facts = agent.probe()
    print(to_json(facts), flush=True)
    artifacts = Artifacts(options.artifacts or options.out / "artifacts")

    def is_over() -> bool:
        return bool(time.monotonic() > deadline_s)

    prepare(artifacts, agent, cells, jobs=options.jobs, is_over=is_over)
    left = 0
    for cell, task_id in planned(cells, options.repeats, read_rows(rows)):
        if is_over() or not artifacts.path(cell).exists():
            left += 1
        else:
            measure(agent, task_of(artifacts, cell, task_id, options), rows)
    table = table_of(cells, list(read_rows(rows).values()), heading(facts, options))
    (options.out / "table.md").write_text(table, encoding="utf-8")
    print(f"{table}\n{left} repeats are left")
    return UNFINISHED if left else 0


def planned(
    cells: Sequence[Cell], repeats: int, rows: dict[str, Measurement]
) -> list[tuple[Cell, str]]:
    """Cells and task ids still to be measured: all cells once in random order, then all again."""
    done = {
        task_id
        for task_id, row in rows.items()
        if row.failure is None or not row.failure.is_transient
    }
    order = [
        (cell, f"{cell.name}/{repeat}")
        for repeat in range(repeats)
        for cell in Random(f"{SEED}/{repeat}").sample(cells, len(cells))
    ]
    return [(cell, task_id) for cell, task_id in order if task_id not in done]


def read_options() -> argparse.Namespace:
    """What the user asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(load_zoo()))
    parser.add_argument("--modes", nargs="+", default=["eager", "compile", "graphs"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "fp16"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-time-s", type=float, default=3.0)
    parser.add_argument("--energy-s", type=float, default=2.0)
    parser.add_argument("--others", default="refuse", help="refuse or flag")
    parser.add_argument("--artifacts", type=Path, help="folder of the files; OUT/artifacts else")
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="exports at a time")
    parser.add_argument("--budget-s", type=float, default=float("inf"))
    return parser.parse_args()


def task_of(
    artifacts: Artifacts, cell: Cell, task_id: str, options: argparse.Namespace
) -> MeasureTask:
    """One repeat."""
    path = artifacts.path(cell)
    primer = artifacts.primer_path
    return MeasureTask(
        task_id=task_id,
        artifact_path=str(path),
        artifact_sha256=file_sha256(path),
        execution=cell.execution,
        is_trusted=True,
        primer_path=str(primer) if primer.exists() else None,
        policy=replace(MeasurePolicy(), max_time_s=options.max_time_s, energy_s=options.energy_s),
        limits=RepeatLimits(timeout_s=TIMEOUT_S),
    )


def measure(agent: CudaAgent, task: MeasureTask, rows: Path) -> None:
    """Measures one repeat, appends and tells it; tries again what may go better then."""
    for _ in range(TRIES):
        start = time.monotonic()
        seen = agent.measure(task)
        with rows.open("a", encoding="utf-8") as file:
            file.write(to_json(seen) + "\n")
        said = seen.failure.message if seen.failure else f"{median_ms([seen], 'samples_ns')} ms"
        flags = ",".join(flag.value for flag in seen.flags)
        took = f"(took {time.monotonic() - start:.0f} s)"
        print(f"{datetime.now(UTC):%H:%M:%S} {task.task_id}: {said} {flags} {took}", flush=True)
        if seen.failure is None or not seen.failure.is_transient:
            return


def read_rows(path: Path) -> dict[str, Measurement]:
    """The last try of each task of this run and of earlier ones; a line cut short is cut off."""
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    rows = [from_json(Measurement, line) for line in whole.splitlines()]
    return {row.task_id: row for row in rows}


def table_of(cells: Sequence[Cell], rows: Sequence[Measurement], head: str) -> str:
    """Medians over repeats of the process medians, one line per cell."""
    names = ["model", "mode", "precision", "repeats", *(name for name, _ in COLUMNS), "flags"]
    lines = [head, "", "| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for cell in cells:
        own = [row for row in rows if row.task_id.rpartition("/")[0] == cell.name]
        good = [row for row in own if row.status is Status.OK]
        flags = sorted({flag.value for row in good for flag in row.flags})
        why = sorted({row.failure.kind.value for row in own if row.failure})
        figures = [make(good) for _, make in COLUMNS]
        shown = [cell.model, cell.mode.value, cell.precision.value, str(len(good)), *figures]
        lines.append("| " + " | ".join([*shown, " ".join([*flags, *why]) or "-"]) + " |")
    return "\n".join(lines) + "\n"


def median_ms(rows: Sequence[Measurement], field: str) -> str:
    """The median over processes of their medians, in milliseconds."""
    samples = [getattr(row, field) for row in rows]
    return median_of([statistics.median(it) / 1e6 for it in samples if it], digits=3)


def median_of(values: Sequence[float | None], divisor: float = 1.0, digits: int = 1) -> str:
    """The median of what is known, as text; a dash where nothing is."""
    known = [value / divisor for value in values if value is not None]
    return f"{statistics.median(known):.{digits}f}" if known else "-"


def heading(facts: object, options: argparse.Namespace) -> str:
    """Date, versions and machine, without which no table says anything."""
    import torch

    return (
        f"{datetime.now(UTC):%Y-%m-%d}, batch {options.batch}, {options.repeats} fresh processes a "
        f"line, TF32 off; PyTorch {torch.__version__}, Python {platform.python_version()}; "
        f"`{facts}`"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FleetError as error:
        sys.exit(str(error))
