"""Messages between an agent and its worker: one tagged request and one reply, each on one line."""

import json
from dataclasses import dataclass

from fleetrank.device_agents.contract.measurement import Block, Failure
from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.foundation.codec import REMEDY, CodecError, from_plain, parse_json, to_plain
from fleetrank.foundation.vocabulary import Words

_TASKS: dict[str, type[MeasureTask] | type[InferTask]] = {
    "measure": MeasureTask,
    "infer": InferTask,
}
STAGE_MARK = "fleetrank-stage:"
"""Starts a line on the worker's standard error with the name of the stage it enters.

If the worker crashes, the last such line shows where.
"""
TURN_MARK = "fleetrank-turn:"
"""Starts a line on the worker's standard output: it waits for its next turn in a round."""


class Turn(Words):
    """What the caller answers, one word on a line of the worker's standard input."""

    BLOCK = "block"
    """Measure a block, then wait again."""
    START = "start"
    """All processes of a set are warm: run for the task's time, then write the measurement."""
    HALF_WIDTH = "half_width"
    MAX_TIME = "max_time"
    MAX_SAMPLES = "max_samples"
    STOPPED = "stopped"
    """The round is over, for this reason: finish and write the measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReport:
    """What a worker writes after `TURN_MARK`.

    Attributes:
        block: the turn that ended; `None` before the first one: the model is loaded and warm.
        samples_ns: of this block.
    """

    block: Block | None = None
    samples_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InferReply:
    """The worker's answer to an `InferTask`; the outputs themselves are in the task's file."""

    failure: Failure | None


def encode_request(task: MeasureTask | InferTask) -> str:
    """Encodes a task with its kind as one line of JSON."""
    kind = "measure" if isinstance(task, MeasureTask) else "infer"
    return json.dumps({"kind": kind, "task": to_plain(task)}, separators=(",", ":"))


def decode_request(line: str) -> MeasureTask | InferTask:
    """Decodes the output of `encode_request`.

    Raises:
        CodecError: the line is not a request; the message names the field.
    """
    plain = parse_json(line)
    if not isinstance(plain, dict) or set(plain) != {"kind", "task"}:
        raise CodecError("a request must be an object with the keys kind and task", REMEDY)
    kind = plain["kind"]
    if not isinstance(kind, str) or kind not in _TASKS:
        raise CodecError(f"unknown request kind {kind!r}", REMEDY)
    return from_plain(_TASKS[kind], plain["task"])
