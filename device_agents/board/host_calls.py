"""The calls that the process of a board's host answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    "accept": (tuple[DeviceTask, ...], bool),
    "missing": (tuple[str, ...],),
    "receive": (FilePart,),
    "poll": (PollRequest,),
    "finish_rounds": (str,),
    "interrupt": (str,),
    "infer": (DeviceSpec, InferTask),
    "take": (str, int),
    "end": (),
}
"""Methods of `BoardHost`, and the types of their arguments.

The content of a `FilePart` follows the request as it is. `infer` ends with the connection.
"""
