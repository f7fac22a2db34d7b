"""The calls that the process of a board's host answers, and the device that they name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fleetrank.device_agents.board.board_state import BoardOptions
from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.device_agents.hosts.messages import DeviceSpec, DeviceTask, FilePart, PollRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What an inference has left on a board.

    Attributes:
        failure: why it left nothing; `None` if it succeeded.
        name: of the file, `SHA256.npz`.
    """

    failure: Failure | None = None
    name: str = ""
    size_bytes: int = 0


HOST_CALLS: Mapping[str, Sequence[Any]] = {
    "accept": (tuple[DeviceTask, ...],),
    "missing": (tuple[str, ...],),
    "receive": (FilePart,),
    "poll": (PollRequest,),
    "finish_rounds": (str,),
    "interrupt": (str,),
    "infer": (DeviceSpec, InferTask),
    "take": (str, int),
    "inspect": (DeviceSpec, tuple[tuple[str, str, str], ...]),
    "set_up": (str, tuple[str, ...]),
}
"""Methods of `BoardHost`, and the types of their arguments.

The content of a `FilePart` follows the request as it is. `infer` ends with the connection.
"""


def device_there(options: BoardOptions) -> DeviceSpec:
    """The device with these options, as the board's host knows it."""
    given = ((one.name, getattr(options, one.name)) for one in fields(options))
    return DeviceSpec(
        name="cpu" if options.gpu is None else f"gpu-{options.gpu.replace('/', '_')}",
        kind="board",
        options=tuple(sorted((name, value) for name, value in given if value is not None)),
        share=HostShare.ALONE,
    )
