"""Makes and verifies the files that `gpu_table.py` measures, several at a time beforehand.

Measuring is done one by one, so whatever can be done side by side is done first: exporting, and
compiling, whose results PyTorch keeps on disk for the processes that measure.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.comparison import compare_files
from fleetrank.device_agents.contract.task import Execution, InferTask, RepeatLimits
from fleetrank.device_agents.cuda.agent import CudaAgent
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import Format, Mode, Precision, Runtime
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_zoo
from fleetrank.models.errors import ModelError
from fleetrank.models.export.process import ExportChild, ExportOrder
from fleetrank.models.networks.primer import primer_request

TIMEOUT_S = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One line of the table."""

    model: str
    mode: Mode
    precision: Precision
    batch: int = 1

    @property
    def name(self) -> str:
        """Begins the task ids of its repeats."""
        return f"{self.model}/{self.mode.value}/{self.precision.value}"

    @property
    def execution(self) -> Execution:
        """How it is run."""
        return Execution(
            runtime=Runtime.TORCH,
            backend="cuda",
            mode=self.mode,
            precision=self.precision,
            batch=self.batch,
        )


class Artifacts:
    """A folder with one folder per exported file; what is there is not made again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.primer_path = self._folder / "primer" / "model.pt2"

    def path(self, cell: Cell) -> Path:
        """The file of a cell; its modes share one."""
        return self._folder / f"{cell.model}-{cell.precision}-b{cell.batch}" / "model.pt2"

    def export(self, cell: Cell) -> None:
        """Exports the file of a cell."""
        request = ExportRequest(
            model=resolve(load_zoo()[cell.model]),
            weights=Weights(),
            format=Format.PT2,
            precision=cell.precision.value,
            batch=cell.batch,
        )
        _export(request, self.path(cell))

    def export_primer(self) -> None:
        """Exports what each worker runs first."""
        _export(primer_request(Format.PT2), self.primer_path)

    def verify(self, agent: CudaAgent, cell: Cell) -> str | None:
        """Runs it on the GPU and says how far it is from the processor's fp32 original.

        `None` when that has been done, or there is no file.
        """
        path = self.path(cell)
        done, outputs = (path.with_name(f"{cell.mode}.{end}") for end in ("verified", "npz"))
        if done.exists() or not path.exists():
            return None
        task = InferTask(
            task_id=cell.name,
            artifact_path=str(path),
            artifact_sha256=file_sha256(path),
            execution=cell.execution,
            inputs_path=str(path.with_name("inputs.npz")),
            outputs_path=str(outputs),
            is_trusted=True,
            limits=RepeatLimits(timeout_s=TIMEOUT_S),
        )
        failure = agent.infer(task)
        if failure is not None:
            return f"{failure.kind}: {failure.message}"
        seen = compare_files(path.with_name("reference.npz"), outputs, cell.precision.value)
        outputs.unlink()
        done.touch()
        return f"{'equal' if seen.is_equal else seen.reason}, {seen.max_relative_error:.1e}"


def prepare(
    artifacts: Artifacts,
    agent: CudaAgent,
    cells: Sequence[Cell],
    *,
    jobs: int,
    is_over: Callable[[], bool],
) -> None:
    """Exports and verifies what is missing, `jobs` at a time, until the time is over."""
    files = list({artifacts.path(cell): cell for cell in cells}.values())
    # Each process that compiles would start as many helpers as there are cores.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, _n_cpus() // jobs)))

    def export(cell: Cell | None) -> None:
        if is_over():
            return
        try:
            artifacts.export_primer() if cell is None else artifacts.export(cell)
        except ModelError as error:
            print(f"{'primer' if cell is None else cell.name}: {error}", flush=True)

    def verify(cell: Cell) -> None:
        said = None if is_over() else artifacts.verify(agent, cell)
        if said is not None:
            print(f"{cell.name} verified: {said}", flush=True)

    # Those that take longest first, so that none is left to end alone.
    slow_first = sorted(cells, key=lambda cell: cell.mode is not Mode.COMPILE)
    start = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(export, [None, *files]))
        print(f"exported after {time.monotonic() - start:.0f} s", flush=True)
        list(pool.map(verify, slow_first))
    print(f"prepared after {time.monotonic() - start:.0f} s", flush=True)


def default_jobs() -> int:
    """How many to make at a time: each takes about two cores and 2 GB."""
    return max(1, min(8, _n_cpus() // 2))


def _n_cpus() -> int:
    return len(os.sched_getaffinity(0))


def _export(request: ExportRequest, path: Path) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExportChild() as child:
            child.export(
                ExportOrder(request=request, out_dir=path.parent, is_trusted=True), TIMEOUT_S
            )
