import weakref

import numpy as np

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.runtimes.onnx_model import OnnxModel
from fleetrank.device_agents.runtimes.torch_runner import TorchModel
from fleetrank.foundation.vocabulary import Runtime


class Result(np.ndarray):
    """An array that can be watched."""


class Network:
    """Gives a new output each time, and notes whether the one before it was still held."""

    def __init__(self) -> None:
        self.last: weakref.ref[Result] | None = None
        self.was_held: list[bool] = []

    def __call__(self) -> Result:
        self.was_held.append(self.last is not None and self.last() is not None)
        output = np.zeros(3).view(Result)
        self.last = weakref.ref(output)
        return output


class Session(Network):
    def get_inputs(self) -> list[object]:
        return []

    def run(self, output_names: None, feed: dict[str, object]) -> list[Result]:
        return [self()]


def test_onnx_holds_no_output_through_the_next_run() -> None:
    session = Session()
    model = OnnxModel(session, Execution(runtime=Runtime.ONNX, backend="cpu"), ())
    for _ in range(3):
        model.run()
    assert session.was_held == [False, False, False]
    assert len(model.outputs()) == 1


def test_torch_holds_no_output_through_the_next_run() -> None:
    import torch

    class Program:
        class graph_signature:  # noqa: N801 - as torch names it
            user_inputs = ()

        class graph:  # noqa: N801
            nodes = ()

    network = Network()
    model = TorchModel(torch, network, Program(), Execution(runtime=Runtime.TORCH, backend="cpu"))
    for _ in range(3):
        model.run()
    assert network.was_held == [False, False, False]
