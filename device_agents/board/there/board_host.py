"""The host of a board: `Host`, with a bound on what it keeps, and inference."""

import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fleetrank.device_agents.board.board_state import TURN_S, read_options
from fleetrank.device_agents.board.host_calls import Outputs
from fleetrank.device_agents.board.there.environment import make_environment
from fleetrank.device_agents.board.there.inspection import BoardProbe, inspect_board
from fleetrank.device_agents.board.there.judged_agent import JudgedAgent
from fleetrank.device_agents.contract.agent import Agent, StopRequested
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.device_agents.errors import DamagedFileError, host_in_use
from fleetrank.device_agents.hosts.host import Host
from fleetrank.device_agents.hosts.messages import DeviceSpec, FilePart, PollReply, PollRequest
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import ErrorKind

_MOST_KEPT = 20
"""Results that nothing fetched; a result is about 100 kB."""
_PIECE_BYTES = 8 << 20
"""As text it is 11 MB: the driver accepts 16 MiB of output from one command."""
_NAME = re.compile(r"[0-9a-f]{64}\.npz")


class BoardHost(Host):
    """The host of this board; its devices are its processor and its GPUs."""

    patience_s = TURN_S
    most_kept = _MOST_KEPT

    def __init__(self, folder: Path) -> None:
        """Takes the folder of fleetrank on this board."""
        super().__init__(folder)
        self._outputs = folder / "outputs"
        shutil.rmtree(self._outputs, ignore_errors=True)
        self._outputs.mkdir()

    def poll(self, request: PollRequest) -> PollReply:
        """As of `Host`; answers at once if it has no task of the sweep, which was lost then."""
        if not self._of_sweep(request.sweep_id):
            request = replace(request, wait_s=0.0)
        return super().poll(request)

    def missing(self, names: Sequence[str]) -> Sequence[str]:
        """Which of these files must be sent."""
        return self._files.missing(names)

    def receive(self, part: FilePart) -> None:
        """As of `Host`, while nothing is measured here: a transfer would disturb it.

        Raises:
            NotFitError: something is still measured.
        """
        with host_lease("a file that is sent to this board", limit_s=TURN_S, busy=host_in_use):
            super().receive(part)

    def infer(self, spec: DeviceSpec, task: InferTask, stop_requested: StopRequested) -> Outputs:
        """Runs a file over inputs, which are removed; the outputs stay until they are taken."""
        place = self._outputs / f".{secrets.token_hex(8)}.npz"
        here = replace(self._files.here(task), outputs_path=str(place.absolute()))
        try:
            failure = self._agent(spec).infer(here, stop_requested)
            if failure is not None:
                return Outputs(failure=failure)
            name, size_bytes = f"{file_sha256(place)}.npz", place.stat().st_size
            place.replace(self._outputs / name)
            return Outputs(name=name, size_bytes=size_bytes)
        finally:
            place.unlink(missing_ok=True)
            Path(here.inputs_path).unlink(missing_ok=True)

    def take(self, name: str, offset: int) -> bytes:
        """The next bytes of outputs, from an offset; removes them after their last byte.

        Raises:
            DamagedFileError: they are not here any more.
        """
        # A name that is none leads to no file.
        path = self._outputs / (name if _NAME.fullmatch(name) else "none")
        try:
            with path.open("rb") as file:
                file.seek(offset)
                piece = file.read(_PIECE_BYTES)
                is_last = not file.read(1)
        except FileNotFoundError as error:
            message = f"the board does not have {name} any more: its host started again"
            remedy = "run the command again: what was scored is kept"
            raise DamagedFileError(message, remedy) from error
        if is_last:
            path.unlink(missing_ok=True)
        return piece

    def inspect(self, spec: DeviceSpec, libraries: Sequence[tuple[str, str, str]]) -> BoardProbe:
        """As `inspect_board`."""
        return inspect_board(read_options(dict(spec.options)), libraries)

    def set_up(self, name: str, requirements: Sequence[str]) -> None:
        """Makes the environment of the board from wheels in a zip file, which is removed."""
        make_environment(self._outputs.parents[1], self._files.path(name), requirements)

    def _is_void(self, measurement: Measurement) -> bool:
        """Also of a task that was stopped, whose driver may have gone."""
        failure = measurement.failure
        is_stopped = failure is not None and failure.kind is ErrorKind.INTERRUPTED
        return is_stopped or super()._is_void(measurement)

    def _create_agent(self, spec: DeviceSpec) -> Agent:
        return JudgedAgent(dict(spec.options))
