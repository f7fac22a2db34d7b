"""Which module each kernel of ONNX Runtime belongs to.

The runtime fuses nodes and names the kernel after one of them, often after the last: a convolution
with its activation is `relu_3_nchwc`. Such a kernel belongs to the node that does the work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetrank.device_agents.profiling.onnx_graph import GraphNode, NodeScope

_LAYOUT = "_nchwc"
"""Appended to the output of a kernel in another layout. Source: nchwc_transformer.cc (1.31)."""
_WIDENED = "InsertedPrecisionFreeCast_"
"""Before the tensors of an fp16 file in fp32. Source: insert_cast_transformer.cc (1.31)."""
_FUSED = "fused "
"""Before the name of a layer with its activation. Source: gemm_activation_fusion.cc (1.31)."""
_BEFORE = "ReorderInput"
"""A change of layout for the kernel after it."""
_LIGHT = frozenset({
    "Add", "BatchNormalization", "Cast", "Celu", "Clip", "DequantizeLinear", "Div", "Elu", "Erf",
    "Flatten", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Max", "Min", "Mish",
    "Mul", "PRelu", "QuantizeLinear", "Relu", "Reshape", "Selu", "Sigmoid", "Softplus", "Softsign",
    "Squeeze", "Sub", "Tanh", "ThresholdedRelu", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators of ONNX that compute each value by itself or only move it: fused into others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedNodes:
    """The nodes of a graph.

    Attributes:
        nodes: by name.
        producer_of: name of the node that writes a tensor.
    """

    nodes: Mapping[str, GraphNode]
    producer_of: Mapping[str, str]

    @classmethod
    def of(cls, nodes: Sequence[GraphNode]) -> "NamedNodes":
        """The nodes, to be found by name and by what they write."""
        return cls(
            nodes={node.name: node for node in nodes},
            producer_of={name: node.name for node in nodes for name in node.outputs if name},
        )

    def node_of(self, kernel: str) -> str | None:
        """The exported node that a kernel is named after; `None` if the runtime inserted it.

        That is a node's name, with what the runtime did (`node_matmul/MatMulScaleFusion/`,
        `fused node_linear`), or the tensor that the kernel writes (`relu_3_nchwc`).
        """
        first = kernel.partition("/")[0].removeprefix(_FUSED)
        if first in self.nodes and self.nodes[first].scope is not None:
            return first
        written = kernel.removesuffix(_LAYOUT)
        if written != kernel:
            written = written.removeprefix(_WIDENED)
        return self.producer_of.get(written)

    def worker_of(self, node: str, operator: str, have_kernels: frozenset[str]) -> str:
        """The node that does the work of a kernel with an operator, or else `node` itself.

        It is the nearest one with that operator, upwards from a light node. A node that has a
        kernel is in no other one. `FusedConv` and `QLinearConv` contain the name of their work.
        """
        level, seen = [node], {node}
        while level:
            light = []
            for one in level:
                kind = self.nodes[one].operator
                if kind in _LIGHT:
                    light.append(one)
                elif kind in operator:
                    return one
            above = [source for one in light for source in self._sources(one)]
            level = [one for one in dict.fromkeys(above) if one not in seen | have_kernels]
            seen.update(level)
        return node

    def _sources(self, node: str) -> list[str]:
        """The nodes whose outputs a node reads."""
        read = self.nodes[node].inputs
        return [self.producer_of[name] for name in read if name in self.producer_of]

    def scopes_of(self, kernels: Sequence[tuple[str, str]]) -> list[tuple[NodeScope | None, bool]]:
        """Of the kernels of one run in order: the scope, and whether the runtime inserted it.

        An inserted kernel has the scope of the kernel before it; one that prepares the layout of
        an input has that of the kernel after it.

        Args:
            kernels: (name, operator) of each.
        """
        if not any(node.scope for node in self.nodes.values()):
            return [(None, False)] * len(kernels)
        nodes = [self.node_of(name) for name, _ in kernels]
        have_kernels = frozenset(node for node in nodes if node is not None)
        known = [
            None if node is None else self._scope_of(node, operator, have_kernels)
            for node, (_, operator) in zip(nodes, kernels, strict=True)
        ]
        before = _filled(known)
        after = _filled(known[::-1])[::-1]
        return [
            (
                (after[place] if name.startswith(_BEFORE) else before[place])
                if known[place] is None
                else known[place],
                nodes[place] is None,
            )
            for place, (name, _) in enumerate(kernels)
        ]

    def _scope_of(self, node: str, operator: str, have_kernels: frozenset[str]) -> NodeScope | None:
        """The scope of the worker, or else that of the node that the kernel is named after."""
        worker = self.worker_of(node, operator, have_kernels)
        return self.nodes[worker].scope or self.nodes[node].scope


def _filled(known: Sequence[NodeScope | None]) -> list[NodeScope | None]:
    """Each missing value replaced by the last one before it."""
    last = next((one for one in known if one is not None), None)
    filled = []
    for one in known:
        last = last if one is None else one
        filled.append(last)
    return filled
