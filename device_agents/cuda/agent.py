"""Measures on one NVIDIA GPU of this host, one fresh worker process per task."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from fleetrank.device_agents.contract.agent import (
    DeviceFacts,
    StopRequested,
    never_stop,
    read_fields,
)
from fleetrank.device_agents.contract.failures import device_lost, failure_from_error
from fleetrank.device_agents.contract.gpu_backends import why_unsupported_on_gpu
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.cuda import nvml
from fleetrank.device_agents.cuda.gpu_choice import VISIBLE, choose_gpu, gpu_facts, uuid_hash
from fleetrank.device_agents.cuda.gpu_watch import gpu_energy
from fleetrank.device_agents.cuda.nvml import Nvml
from fleetrank.device_agents.cuda.nvml_library import Gpu
from fleetrank.device_agents.errors import PermanentError, TransientError, UnsupportedError
from fleetrank.device_agents.linux.cpu_facts import read_facts
from fleetrank.device_agents.linux.replica_client import longest_s, measure_in_workers
from fleetrank.device_agents.linux.worker_client import WORKER, infer_in_worker
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import (
    give_up_at_once,
    is_locked,
    open_lease,
    runtime_folder,
    wait_for_lock,
)
from fleetrank.foundation.vocabulary import ErrorKind

_MAYBE_LOST = {
    ErrorKind.CRASHED, ErrorKind.TIMED_OUT, ErrorKind.INTERNAL, ErrorKind.BAD_ARTIFACT,
    ErrorKind.BAD_OUTPUT,
}  # fmt: skip
"""Exit forms of a worker whose GPU was lost, besides those that report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOptions:
    """Options of a device file.

    Attributes:
        uuid: UUID of the GPU or MIG instance, as `nvidia-smi -L` prints it; a prefix is enough.
            `None` uses the only one that exists.
        lock_clocks_mhz: lock the SM clock at this value during a repeat; needs root.
        others: if other processes use the GPU, `refuse` waits and `flag` measures beside them.
    """

    uuid: str | None = None
    lock_clocks_mhz: int | None = None
    others: str = "refuse"


class CudaAgent:
    """The `cuda` device kind; options as in `CudaOptions`.

    Its workers have a limit on host memory only if the sweep sets one. RLIMIT_DATA also counts
    what the driver maps for itself. That amount depends on GPU and driver, not on the model. So a
    limit that is a share of host memory could make every cell of a large GPU in a small host fail.
    """

    def __init__(
        self,
        options: Mapping[str, OptionValue],
        *,
        open_library: Callable[[], Nvml] = nvml.open_nvml,
        command: Sequence[str] = WORKER,
    ) -> None:
        self._options = read_fields(CudaOptions, "cuda", options)
        if self._options.others not in ("refuse", "flag"):
            raise PermanentError(
                f"option others is {self._options.others!r}", "set it to refuse or flag"
            )
        self._open_library = open_library
        self._command = tuple(command)

    def probe(self) -> DeviceFacts:
        """Describes the device."""
        library, gpu = self._find()
        return gpu_facts(read_facts(), gpu, library.hardware(gpu), library.driver())

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why this device cannot execute this, or `None` when it can."""
        return why_unsupported_on_gpu(execution)

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time that `measure` may take, in seconds."""
        return longest_s(task)

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat."""
        reason = self.why_unsupported(task.execution)
        if reason is not None:
            refusal = UnsupportedError(reason, "remove this combination from the sweep")
            return failed(task.task_id, failure_from_error(refusal, "start"))
        try:
            library, gpu = self._find()
            free_forgotten(library, gpu)
            asked = replace(
                task,
                gpu_uuid=gpu.uuid,
                allows_shared_gpu=self._options.others == "flag",
            )
            with held_clock(library, gpu, self._options.lock_clocks_mhz) as lock:
                run = partial(measure_in_workers, command=self._command)
                seen = run(asked, stop_requested, source=partial(gpu_energy, library, gpu))
        except FleetError as error:
            return failed(task.task_id, failure_from_error(error, "start"))
        return self._blame(_with_lock(seen, lock), gpu)

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the artifact over stored inputs and writes its outputs."""
        asked = replace(task, gpu_uuid=self._options.uuid)
        return infer_in_worker(asked, stop_requested, command=self._command)

    def _find(self) -> tuple[Nvml, Gpu]:
        """Finds the chosen GPU.

        Raises:
            FleetError: no driver, GPU not found, hidden, or fallen off the bus.
        """
        library = self._open_library()
        wanted, visible = self._options.uuid, os.environ.get(VISIBLE)
        return library, choose_gpu(library.find(), wanted=wanted, visible=visible)

    def _blame(self, seen: Measurement, gpu: Gpu) -> Measurement:
        """Attributes a failure to the GPU if the GPU no longer answers."""
        failure = seen.failure
        if failure is None or failure.kind not in _MAYBE_LOST:
            return seen
        try:
            library = self._open_library()
            choose_gpu(library.find(), wanted=gpu.uuid, visible=None)
            library.read(gpu)
        except TransientError:
            return replace(seen, failure=device_lost(failure.message, failure.stage))
        except FleetError:
            return seen
        return seen


def _with_lock(seen: Measurement, lock: str | None) -> Measurement:
    """Stores with the row whether the clock was locked."""
    if lock is None or seen.worker is None:
        return seen
    settings = tuple(sorted((*seen.worker.settings, ("clock_lock", lock))))
    return replace(seen, worker=replace(seen.worker, settings=settings))


@contextmanager
def held_clock(library: Nvml, gpu: Gpu, mhz: int | None) -> Iterator[str | None]:
    """Yields the outcome: 'locked at 1410 MHz', 'not allowed', or `None` if no lock is requested.

    A file beside the host's lease exists while the clock is locked, and its holder locks the file.
    If the file has no live holder, a process died in between: see `free_forgotten`.
    """
    if mhz is None:
        yield None
        return
    path = runtime_folder() / _file_name(gpu)
    with open_lease(path) as note:
        wait_for_lock(note, give_up_at_once)
        is_held = library.lock_clocks(gpu, mhz)
        try:
            yield f"locked at {mhz} MHz" if is_held else "not allowed"
        finally:
            if not is_held or _let_go(library, gpu):
                path.unlink(missing_ok=True)


def free_forgotten(library: Nvml, gpu: Gpu) -> bool:
    """Unlocks a clock whose holder died; returns whether there was one."""
    path = runtime_folder() / _file_name(gpu)
    if not path.exists() or is_locked(path):
        return False
    if _let_go(library, gpu):
        path.unlink(missing_ok=True)
    return True


def _let_go(library: Nvml, gpu: Gpu) -> bool:
    try:
        return library.unlock_clocks(gpu)
    except FleetError:
        return False  # a GPU off the bus; the file stays, and the next repeat tries again


def _file_name(gpu: Gpu) -> str:
    return f"clock-{uuid_hash(gpu.parent_uuid or gpu.uuid)}"
