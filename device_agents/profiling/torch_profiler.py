"""PyTorch: each node of an exported program is run and timed by itself.

`torch.profiler` knows operators and not modules after an export, so an interpreter runs the graph.
It takes up to twice as long as the program, mostly between the nodes.
"""

import importlib
import time
from collections.abc import Callable
from typing import Protocol, cast

from fleetrank.device_agents.contract.kernel_profile import Kernel
from fleetrank.device_agents.contract.runtime import LoadedModel
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.runtimes.torch_runner import TorchRunner

_NO_KERNELS = frozenset({"placeholder", "output", "get_attr"})
"""Kinds of nodes that name a value and compute nothing."""


class _Node(Protocol):
    op: str
    name: str
    target: object
    meta: dict[str, object]


class _Interpreter(Protocol):
    def run(self, *arguments: object) -> object:
        """Runs the graph."""
        ...

    def run_node(self, node: _Node) -> object:
        """Runs one node."""
        ...


class TorchProfiler:
    """It fulfils `Profiler`."""

    def __init__(self) -> None:
        self.runner = TorchRunner(wrap=self._timed)
        self._runs: list[list[Kernel]] = []

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact whose nodes are timed."""
        return self.runner.load(path, execution)

    def last_runs(self, count: int) -> list[list[Kernel]]:
        """The calls of the last inferences."""
        return self._runs[-count:]

    def _timed(self, module: Callable[..., object]) -> Callable[..., object]:
        fx = importlib.import_module("torch.fx")
        interpreter = cast(_Interpreter, fx.Interpreter(module))
        plain, clock = interpreter.run_node, time.perf_counter_ns
        calls: list[Kernel] = []

        def run_node(node: _Node) -> object:
            start = clock()
            result = plain(node)
            ns = clock() - start
            if node.op not in _NO_KERNELS:
                calls.append(_call(node, ns))
            return result

        def run(*arguments: object) -> object:
            calls.clear()
            result = interpreter.run(*arguments)
            self._runs.append(list(calls))
            return result

        interpreter.run_node = run_node  # type: ignore[method-assign]
        return run


def _call(node: _Node, ns: int) -> Kernel:
    operator = operator_of(node.target)
    return Kernel(
        node=node.name,
        module=module_of(node.meta.get("nn_module_stack")),
        operator=operator,
        kernel_ns=ns,
        source_operator=operator,
    )


def module_of(stack: object) -> str | None:
    """The innermost module of a node's stack; empty for the model, `None` without a stack.

    `{"L__self__": ("", "Net"), "L__self___a": ("blocks.0.a", "Linear")}` gives `blocks.0.a`.
    """
    if not isinstance(stack, dict) or not stack:
        return None
    innermost = list(stack.values())[-1]
    path = innermost[0] if isinstance(innermost, tuple | list) and innermost else None
    return path if isinstance(path, str) else None


def operator_of(target: object) -> str:
    """The name of an operation without its overload: `aten.conv2d.default` gives `conv2d`."""
    name = getattr(target, "__name__", None) or str(target)
    return name.removeprefix("aten.").partition(".")[0]
