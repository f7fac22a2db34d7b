"""The agent of a board's processor or GPU, which judges the board before and after each repeat.

Agents are imported only when they are needed: that of the processor needs NumPy, which a board may
not have yet when it is registered.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleetrank.device_agents.board.board_state import (
    BoardState,
    parse_state,
    read_options,
    require_identity,
    why_unfit,
    with_state,
)
from fleetrank.device_agents.board.there.readings import (
    THROTTLED,
    read_identity,
    read_state_text,
    run_program,
)
from fleetrank.device_agents.canary import CANARY_LIMIT_S, between_canaries
from fleetrank.device_agents.contract.agent import (
    Agent,
    DeviceFacts,
    RoundAgent,
    StopRequested,
    never_stop,
)
from fleetrank.device_agents.contract.failures import failure_from_error, interrupted
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.device_output import Throttled, parse_throttled
from fleetrank.device_agents.errors import MissingLibraryError, host_in_use
from fleetrank.device_agents.linux.cpu_facts import read_facts
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import host_lease

if TYPE_CHECKING:
    from fleetrank.device_agents.cuda.nvml import Nvml

_FIRMWARE_POLL_S = 2.0
"""Between two questions to the firmware while a model is timed; each takes some milliseconds."""
Options = Mapping[str, OptionValue]


def device_facts(gpu: "Options | None") -> DeviceFacts:
    """The facts of the processor, or of the GPU with these options of a `cuda` device.

    Raises:
        FleetError: the driver, its binding for Python or the GPU is missing.
    """
    return read_facts() if gpu is None else local_agent(gpu).probe()


def local_agent(gpu: "Options | None") -> Agent:
    """An agent whose workers are started from the file that was sent here.

    Args:
        gpu: options of a `cuda` device; `None` for the processor.
    """
    worker = (sys.executable, sys.argv[0], "worker")
    if gpu is None:
        from fleetrank.device_agents.cpu import CpuAgent

        return CpuAgent({}, command=worker)
    from fleetrank.device_agents.cuda.agent import CudaAgent

    return CudaAgent(gpu, open_library=_open_nvml, command=worker)


def _open_nvml() -> "Nvml":
    from fleetrank.device_agents.cuda import nvml

    try:
        return nvml.open_nvml()
    except MissingLibraryError as error:
        raise MissingLibraryError(
            error.message, f"on the board: {sys.executable} -m pip install nvidia-ml-py"
        ) from error


class JudgedAgent:
    """The agent of a device of this board; its options are those of `BoardOptions`."""

    def __init__(self, options: Options) -> None:
        """Reads the options."""
        self._options = read_options(options)
        self._agent = local_agent(self._options.gpu_options)

    def probe(self) -> DeviceFacts:
        """Describes the device."""
        return device_facts(self._options.gpu_options)

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why the device cannot execute this, or `None` when it can."""
        return self._agent.why_unsupported(execution)

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time that `measure` may take, in seconds."""
        own_s = self._agent.longest_s(task)
        return own_s if task.canary is None else own_s + 2 * CANARY_LIMIT_S

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat."""
        (answer,) = self._judged(
            [task], lambda: [self._agent.measure(task, stop_requested)], stop_requested
        )
        return answer

    def measure_round(
        self,
        tasks: Sequence[MeasureTask],
        stop_requested: StopRequested = never_stop,
        finish_requested: StopRequested = never_stop,
    ) -> Sequence[Measurement]:
        """Measures one repeat of each task in turns."""
        agent = self._agent
        if not isinstance(agent, RoundAgent):
            return [self.measure(task, stop_requested) for task in tasks]
        return self._judged(
            tasks,
            lambda: agent.measure_round(tasks, stop_requested, finish_requested),
            stop_requested,
        )

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the artifact; a hot or slowed board is not refused: its outputs are the same."""
        try:
            require_identity(self._options, read_identity())
            with host_lease(
                task.task_id,
                give_up=stop_requested,
                limit_s=self._options.max_wait_s,
                busy=host_in_use,
            ) as is_held:
                return self._agent.infer(task, stop_requested) if is_held else interrupted()
        except FleetError as error:
            return failure_from_error(error, "start")

    def _judged(
        self,
        tasks: Sequence[MeasureTask],
        measure: Callable[[], Sequence[Measurement]],
        stop: StopRequested,
    ) -> Sequence[Measurement]:
        """Measures, with the canary where it is due; a board that is not fit is a failure."""
        try:
            return between_canaries(
                tasks[0].canary,
                lambda task: self._watched(lambda: [self._agent.measure(task, stop)])[0],
                self._options.canary_tolerance,
                lambda: self._watched(measure),
            )
        except (FleetError, OSError) as error:
            failure = failure_from_error(error, "start")
            return [failed(task.task_id, failure) for task in tasks]

    def _watched(self, measure: Callable[[], Sequence[Measurement]]) -> Sequence[Measurement]:
        """Measures if this is the registered board and it is fit; adds what slowed it."""
        require_identity(self._options, read_identity())
        before = parse_state(read_state_text())
        unfit = why_unfit(before, self._options)
        if unfit is not None:
            raise unfit
        with _polled(before) as polled:
            found = measure()
        after = parse_state(read_state_text())
        return [with_state(one, before, polled, after) for one in found]


@contextmanager
def _polled(before: BoardState) -> Iterator[list[Throttled]]:
    """Asks a Raspberry Pi's firmware while the block runs, if only that shows a new problem.

    Its bits `since boot` show any problem of the block unless they were set before it.
    """
    seen: list[Throttled] = []
    if before.throttled is None or not before.throttled.since_boot:
        yield seen
        return
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.wait(_FIRMWARE_POLL_S):
            if (found := parse_throttled(run_program(THROTTLED))) is not None:
                seen.append(found)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()
