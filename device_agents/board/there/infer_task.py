"""Runs a file over given inputs on a board; the store keeps the outputs until they are fetched."""

from dataclasses import replace

from fleetrank.device_agents.board.there.board_store import BoardStore
from fleetrank.device_agents.board.there.line import Line
from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.protocol import decode_request
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.foundation.codec import to_plain


def infer(
    store: BoardStore, agent: Agent, request: str, inputs_name: str, line: Line
) -> "dict[str, object]":
    """Runs an `InferTask`; the caller holds the board. Its inputs are removed in any case.

    Args:
        store: of this board.
        agent: of its processor, or of its GPU.
        request: the task as `contract.protocol` writes it, with paths on this board.
        inputs_name: of its inputs in the store.
        line: to the host; the worker ends when it does.

    Returns:
        `failure`; or `name` and `size` of the outputs in the store.
    """
    task = decode_request(request)
    if not isinstance(task, InferTask):
        raise TypeError("the request is not an inference")
    try:
        failure = agent.infer(replace(task, outputs_path=str(store.outputs)), line.is_gone)
        if failure is not None:
            return {"failure": to_plain(failure)}
        name, size = store.adopt_outputs()
        return {"name": name, "size": size}
    finally:
        store.outputs.unlink(missing_ok=True)
        store.remove(inputs_name)
