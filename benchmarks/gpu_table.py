"""The zoo on one NVIDIA GPU: PyTorch eager, compiled and as CUDA graphs, in fp32 and fp16.

Needs PyTorch, torchvision, timm, NumPy and nvidia-ml-py; no Ray, no Polars, no installation:

    PYTHONPATH=. python3 benchmarks/gpu_table.py --out gpu-table

exports what is missing into OUT/artifacts, appends one measurement per line to OUT/rows.jsonl, and
prints a table of medians in Markdown, also written to OUT/table.md. What is in rows.jsonl is not
measured again, so that a run that was cut off goes on; a failed repeat is a line as well.
"""

import argparse
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from device_agents.codec import from_json, to_json
from device_agents.cuda.agent import CudaAgent
from device_agents.measurement import Energy, Measurement
from device_agents.task import Execution, MeasurePolicy, MeasureTask
from device_agents.vocabulary import Mode, Precision, Runtime, Status
from models.cards import file_sha256, load_zoo
from models.errors import ModelError
from models.export.process import export_in_child
from models.primer import primer_request
from models.types import ExportRequest, Format, Weights

EXPORT_TIMEOUT_S = 600.0
SEED = 0
Rows = Sequence[Measurement]


def energies(rows: Rows) -> list[Energy]:
    """Of the repeats whose GPU counts energy."""
    return [row.energy for row in rows if row.energy is not None]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One line of the table."""

    model: str
    mode: Mode
    precision: Precision

    @property
    def name(self) -> str:
        """Begins the task ids of its repeats."""
        return f"{self.model}/{self.mode.value}/{self.precision.value}"


def main() -> None:
    """Exports, measures round by round in random order, prints."""
    options = read_options()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = options.out / "rows.jsonl"
    cells = [
        Cell(model=model, mode=Mode(mode), precision=Precision(precision))
        for model in options.models
        for mode in options.modes
        for precision in options.precisions
    ]
    agent = CudaAgent({"others": options.others})
    facts = agent.probe()
    print(to_json(facts), flush=True)
    done = {task_id for task_id, _ in read_rows(rows)}
    for repeat in range(options.repeats):
        for cell in Random(f"{SEED}/{repeat}").sample(cells, len(cells)):
            task_id = f"{cell.name}/{repeat}"
            if task_id not in done:
                measure(agent, cell, task_id, options, rows)
    table = table_of(cells, [row for _, row in read_rows(rows)], heading(facts, options))
    (options.out / "table.md").write_text(table, encoding="utf-8")
    print(table)


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
    return parser.parse_args()


def measure(
    agent: CudaAgent, cell: Cell, task_id: str, options: argparse.Namespace, rows: Path
) -> None:
    """Measures one repeat and appends it; a model that cannot be exported is passed over."""
    folder = options.out / "artifacts"
    card = load_zoo()[cell.model]
    request = ExportRequest(
        card=card,
        weights=Weights(),
        format=Format.PT2,
        precision=cell.precision.value,
        batch=options.batch,
    )
    try:
        path = exported(request, folder / f"{cell.model}-{cell.precision}-b{options.batch}")
        primer = exported(primer_request(Format.PT2), folder / "primer")
    except ModelError as error:
        print(f"{task_id}: {error}", flush=True)
        return
    task = MeasureTask(
        task_id=task_id,
        artifact_path=str(path),
        artifact_sha256=file_sha256(path),
        execution=Execution(
            runtime=Runtime.TORCH,
            backend="cuda",
            mode=cell.mode,
            precision=cell.precision,
            batch=options.batch,
        ),
        is_trusted=True,
        primer_path=str(primer),
        policy=replace(MeasurePolicy(), max_time_s=options.max_time_s, energy_s=options.energy_s),
        timeout_s=400.0,
    )
    seen = agent.measure(task)
    with rows.open("a", encoding="utf-8") as file:
        file.write(to_json(seen) + "\n")
    said = seen.failure.message if seen.failure else f"{median_ms([seen], 'samples_ns')} ms"
    flags = ",".join(flag.value for flag in seen.flags)
    print(f"{datetime.now(UTC):%H:%M:%S} {task_id}: {said} {flags}", flush=True)


def exported(request: ExportRequest, folder: Path) -> Path:
    """The file of a request; made once."""
    path = folder / "model.pt2"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        export_in_child(
            request,
            folder.resolve(),
            timeout_s=EXPORT_TIMEOUT_S,
            memory_limit_bytes=None,
            is_trusted=True,
        )
    return path.resolve()


def read_rows(path: Path) -> Iterator[tuple[str, Measurement]]:
    """Task ids and measurements of an earlier run."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        row = from_json(Measurement, line)
        yield row.task_id, row


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
    sys.exit(main())
