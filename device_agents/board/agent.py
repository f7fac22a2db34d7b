"""The agent of a Linux board that is reached over ssh.

It carries tasks to the board's host, which runs `CpuAgent` or `CudaAgent` there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetrank.device_agents.board.board_canary import CANARY_LIMIT_S
from fleetrank.device_agents.board.board_inference import infer_there
from fleetrank.device_agents.board.board_link import BoardLink, connection_to
from fleetrank.device_agents.board.board_probe import probe_board, to_device_facts
from fleetrank.device_agents.board.board_repeat import BoardRepeat, Wishes, device_there
from fleetrank.device_agents.board.board_state import TURN_S, read_options
from fleetrank.device_agents.contract.agent import DeviceFacts, StopRequested, never_stop
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS, why_unsupported_on_gpu
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed, utc_now
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.runtimes.runner import why_unsupported
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Runtime

BESIDE_S = 900.0
"""For all steps beside the repeat: a push of a gigabyte at 2 MB/s takes 500 s."""


class BoardAgent:
    """The `board` device kind; its options are those of `BoardOptions`."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Reads the options; the board is not contacted before the first call."""
        self._options = read_options(options)
        self._connection = connection_to(self._options)

    def probe(self) -> DeviceFacts:
        """Describes the board, and checks that it is the registered one."""
        probe = probe_board(self._link(), self._options, tries_libraries=False)
        probe.require(self._options)
        return to_device_facts(probe, self._options)

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why this board cannot execute this, or `None` when it can."""
        has_gpu = self._options.gpu is not None
        if execution.backend in GPU_BACKENDS and not has_gpu:
            return (
                "this device is the board's processor: register its GPU as a device too, with "
                "another name and the option gpu=UUID"
            )
        runtimes, cpus = self._options.found_runtimes, self._options.cpus
        runtime = execution.runtime.value
        if execution.runtime not in set(Runtime):
            return f"a board has fleetrank's own runtimes only, not {runtime}"
        if runtimes is not None and runtime not in runtimes:
            return (
                f"the board was registered without {runtime}; run `fleetrank devices add` with "
                f"`ssh={self._options.ssh}` and `setup={runtime}`"
            )
        if cpus is not None and execution.threads > cpus:
            return (
                f"{execution.threads} threads need more than the board's {cpus} CPUs: "
                f"set `threads` to {cpus} at most"
            )
        return why_unsupported_on_gpu(execution) if has_gpu else why_unsupported(execution)

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time of `measure`: the board can be in use, and the line can be cut."""
        own_s = 2 * task.timeout_s + 2 * TURN_S + self._options.reconnect_s + BESIDE_S
        return own_s if task.canary is None else own_s + 4 * CANARY_LIMIT_S

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat; its times are of this host's clock, the board's may be wrong."""
        (answer,) = self._measured([replace(task, blocks=None)], Wishes(stop=stop_requested))
        return answer

    def measure_round(
        self,
        tasks: Sequence[MeasureTask],
        stop_requested: StopRequested = never_stop,
        finish_requested: StopRequested = never_stop,
    ) -> Sequence[Measurement]:
        """Measures one repeat of each task in turns; the board itself gives the turns."""
        return self._measured(tasks, Wishes(stop=stop_requested, finish=finish_requested))

    def _measured(self, tasks: Sequence[MeasureTask], wishes: Wishes) -> list[Measurement]:
        started = utc_now()
        try:
            found = BoardRepeat(self._link(), self._options, tasks, wishes).measure()
        except (FleetError, OSError) as error:
            failure = failure_from_error(error, "start")
            found = [failed(task.task_id, failure) for task in tasks]
        finished = utc_now()
        return [
            replace(
                one,
                failure=self._patient(one.failure),
                started_utc=started,
                finished_utc=finished,
            )
            for one in found
        ]

    def _patient(self, failure: Failure | None) -> Failure | None:
        """The failure with the patience of this board's file."""
        if failure is None or failure.wait is None:
            return failure
        return replace(failure, wait=replace(failure.wait, limit_s=self._options.max_wait_s))

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the file on the board over stored inputs; fetches its outputs."""
        try:
            return infer_there(
                self._link(),
                device_there(self._options),
                task,
                self._options.max_wait_s,
                stop_requested,
            )
        except (FleetError, OSError) as error:
            return failure_from_error(error, "start")

    def _link(self) -> BoardLink:
        return BoardLink(self._connection, self._options.python)
