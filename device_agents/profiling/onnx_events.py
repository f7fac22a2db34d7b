"""Reads the profile that ONNX Runtime writes: a list of events in Chrome's trace format."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetrank.device_agents.errors import BadOutputError
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.units import NS_PER_US

_KERNEL = "_kernel_time"
"""What is appended to the name of a node. Source: profiles of ONNX Runtime 1.22 to 1.31."""
_RUN = "model_run"
_INPUTS = {"Gemm": 3, "FusedGemm": 3, "MatMul": 2, "FusedMatMul": 2}
"""Inputs of operators whose constant weights the runtime packs: it then states neither their shape
nor their size. A Gemm without a bias looks like one with packed weights and a bias. Source:
profiles of ONNX Runtime 1.31, with and without `session.disable_prepacking`."""
_REMEDY = "profile it with the version of ONNX Runtime in constraints.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxEvent:
    """One call of a kernel; bytes are `None` if the version of the runtime does not state them."""

    kernel: str
    operator: str
    start_us: int
    ns: int
    output_bytes: int | None
    weight_bytes: int | None


def runs_of(text: str) -> list[list[OnnxEvent]]:
    """The calls of each inference, in order.

    Raises:
        BadOutputError: the text is not such a profile.
    """
    with failing_as(BadOutputError, "ONNX Runtime's profile cannot be read", _REMEDY):
        events = json.loads(text)
        ends = [
            int(event["ts"]) + int(event["dur"]) for event in events if event.get("name") == _RUN
        ]
        calls = [_call(event) for event in events if _is_kernel(event)]
    return _by_run(sorted(ends), sorted(calls, key=lambda call: call.start_us))


def _by_run(ends_us: Sequence[int], calls: Sequence[OnnxEvent]) -> list[list[OnnxEvent]]:
    runs: list[list[OnnxEvent]] = [[] for _ in ends_us]
    run = 0
    for call in calls:
        while run < len(ends_us) and call.start_us > ends_us[run]:
            run += 1
        if run == len(ends_us):
            raise BadOutputError("ONNX Runtime's profile has a kernel after the last run", _REMEDY)
        runs[run].append(call)
    return runs


def _is_kernel(event: Mapping[str, object]) -> bool:
    return event.get("cat") == "Node" and str(event.get("name")).endswith(_KERNEL)


def _call(event: Mapping[str, object]) -> OnnxEvent:
    arguments = event["args"]
    if not isinstance(arguments, dict):
        raise TypeError("args of a kernel is not an object")
    return OnnxEvent(
        kernel=str(event["name"]).removesuffix(_KERNEL),
        operator=str(arguments.get("op_name", "")),
        start_us=_whole(event["ts"]),
        ns=_whole(event["dur"]) * NS_PER_US,
        output_bytes=_bytes(arguments.get("output_size")),
        weight_bytes=_weight_bytes(arguments),
    )


def _weight_bytes(arguments: Mapping[str, object]) -> int | None:
    """The bytes of all parameters; `None` if the weights are packed."""
    stated, needed = (
        arguments.get("input_type_shape"),
        _INPUTS.get(str(arguments.get("op_name")), 0),
    )
    is_whole = needed == 0 or (isinstance(stated, list) and len(stated) >= needed)
    return _bytes(arguments.get("parameter_size")) if is_whole else None


def _whole(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a time in microseconds")
    return value


def _bytes(value: object) -> int | None:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None
