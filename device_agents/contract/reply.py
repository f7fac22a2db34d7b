"""Reads the reply to a measurement; every value of it is checked here, once.

The process that writes a reply runs a model file, which can be from outside: it can write anything.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace

from fleetrank.device_agents.contract.measurement import Block, Measurement
from fleetrank.device_agents.contract.protocol import TurnReport
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.foundation.codec import REMEDY, CodecError, Json, from_json, from_plain
from fleetrank.foundation.units import NS_PER_S
from fleetrank.foundation.vocabulary import Origin, Status

_MOST = 2**62
"""Half of what a column holds, so that the sum of two numbers fits too; 146 years in ns."""
_NOT_NEGATIVE = (0, _MOST)
_RANGES: Mapping[str, tuple[float, float]] = {
    "samples_ns": (1, _MOST),
    "samples": (1, _MOST),
    "busy_share": (0, 1),
    "steal_share": (0, 1),
    "battery_percent": (0, 100),
    "temp_c": (-273.15, 1000),
    "above_idle_mj": (-_MOST, _MOST),
    "exit_code": (-255, 255),
    "niceness": (-20, 19),
    "oom_score_adj": (-1000, 1000),
    "settings": (-_MOST, _MOST),
}
"""Smallest and largest value of a field; all others are counts and sizes: not negative."""
_LATE_S = 1.0
"""How much later than its time limit a worker can be ended."""


def read_reply(plain: Json, task: MeasureTask) -> Measurement:
    """Returns the reply to a task; its origin is always `measured`.

    Raises:
        CodecError: a field is unknown, missing or of the wrong type, the reply is to another task,
            or a value is impossible; the message names it.
    """
    found = from_plain(Measurement, plain)
    if found.task_id != task.task_id:
        raise CodecError(f"it answers task {found.task_id!r}, not {task.task_id!r}", REMEDY)
    require_possible(found, task.limits.timeout_s)
    return replace(found, origin=Origin.MEASURED)


def require_possible(found: Measurement, timeout_s: float, others: Iterable[str] = ()) -> None:
    """Returns if every value of an answer is possible; raises `CodecError` otherwise.

    Args:
        found: the answer.
        timeout_s: time limit of its task.
        others: problems that are known already.
    """
    _refuse((*others, *_problems(found, timeout_s)))


def read_turn_report(text: str) -> TurnReport:
    """Returns what a worker of a round says after its turn; raises as `read_reply`."""
    found = from_json(TurnReport, text)
    blocks = () if found.block is None else (found.block,)
    _refuse((*_out_of_range(found, "TurnReport"), *_unlike_blocks(blocks, len(found.samples_ns))))
    return found


def _refuse(problems: Iterable[str]) -> None:
    for problem in problems:
        raise CodecError(problem, REMEDY)


def _problems(found: Measurement, timeout_s: float) -> Iterator[str]:
    yield from _out_of_range(found, "Measurement")
    if (found.status is Status.OK) != (found.failure is None):
        yield f"Measurement.status is {found.status.value}, and its failure says otherwise"
    has_result = found.samples_ns or found.summary or found.profile or found.replicas
    if found.status is Status.OK and not has_result:
        yield "Measurement.status is ok, and it has no result"
    if found.blocks:
        yield from _unlike_blocks(found.blocks, len(found.samples_ns))
    parts_ns = (found.load_ns, found.first_inference_ns, found.warmup_ns, sum(found.samples_ns))
    spent_s = sum(ns or 0 for ns in parts_ns) / NS_PER_S
    if spent_s > timeout_s + _LATE_S:
        yield f"its times sum up to {spent_s:g} s, and it was given {timeout_s:g} s"


def _out_of_range(value: object, where: str) -> Iterator[str]:
    """Yields the numbers of a message that cannot be, each with its place."""
    if is_dataclass(value):
        for field in fields(value):
            yield from _out_of_range(getattr(value, field.name), f"{where}.{field.name}")
    elif isinstance(value, tuple):
        # Thousands of samples: only the smallest and the largest are looked at.
        is_numbers = set(map(type, value)) == {int}
        for item in (min(value), max(value)) if is_numbers else value:
            yield from _out_of_range(item, where)
    elif isinstance(value, int | float):
        low, high = _RANGES.get(where.rpartition(".")[2], _NOT_NEGATIVE)
        if not low <= value <= high:
            yield f"{where} is {value:g}, and must be from {low:g} to {high:g}"


def _unlike_blocks(blocks: tuple[Block, ...], n_samples: int) -> Iterator[str]:
    if (n_in_blocks := sum(block.samples for block in blocks)) != n_samples:
        yield f"its blocks have {n_in_blocks} samples, and it has {n_samples}"
