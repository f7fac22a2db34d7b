"""ONNX Runtime: its own profile of the kernels, joined to the modules that the file names."""

import ast
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.contract.measurement import Kernel
from fleetrank.device_agents.contract.runtime import LoadedModel
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.device_agents.runtimes.onnx_runner import OnnxRunner
from fleetrank.foundation.binary import Span, spans_of
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.onnx_file import NODES, NodeField, onnx_graph, text_of
from fleetrank.foundation.vocabulary import NS_PER_US

# Reads the profile that ONNX Runtime writes: a list of events in Chrome's trace format.

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


# The nodes of an ONNX file, with the modules that the exporter of PyTorch noted.

_SCOPES = "pkg.torch.onnx.name_scopes"
"""Key of the list of names from the model to the node. Source: torch.onnx since PyTorch 2.5."""
_RULES = "pkg.onnxscript.rewriter.rule_name"
"""Key of the rules that the exporter made the node by. Source: onnxscript 0.5."""
_NORM_RULE = "FuseBatchNormInto"
"""Starts the rules that put a norm into the layer before it; the new node is noted as the norm."""
_WEIGHT = 1
"""Place of the weight among the inputs of a layer."""
_KEY, _VALUE = 1, 2
"""Fields of one entry of a node's metadata."""
_MOST_SCOPE_CHARACTERS = 10_000
"""Longer than any list of nested modules."""
_NUMBER = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a node comes from.

    Attributes:
        module: path of its module; empty for the model itself.
        operator: PyTorch's name of the operation; `None` if the exporter noted another one.
    """

    module: str
    operator: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """One node; its inputs and outputs are names of tensors, and its operator is ONNX's."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scope: Scope | None


def read_graph(path: Path) -> list[GraphNode]:
    """The nodes in order; a file that cannot be read here has none."""
    try:
        return list(_nodes(path.read_bytes()))
    except (OSError, ValueError):
        return []


def _nodes(data: bytes) -> Iterator[GraphNode]:
    parts = spans_of(data, onnx_graph(data))
    return (_node(data, span) for field, span in parts if field == NODES)


def _node(data: bytes, node: Span) -> GraphNode:
    read = (NodeField.INPUTS, NodeField.OUTPUTS, NodeField.NAME, NodeField.OPERATOR)
    texts: dict[int, list[str]] = {field: [] for field in read}
    notes: dict[str, str] = {}
    for number, span in spans_of(data, node):
        if number in texts:
            texts[number].append(text_of(data, span))
        elif number == NodeField.METADATA:
            fields = {field: text_of(data, part) for field, part in spans_of(data, span)}
            notes[fields.get(_KEY, "")] = fields.get(_VALUE, "")
    return GraphNode(
        name="".join(texts[NodeField.NAME][-1:]),
        operator="".join(texts[NodeField.OPERATOR][-1:]),
        inputs=tuple(texts[NodeField.INPUTS]),
        outputs=tuple(texts[NodeField.OUTPUTS]),
        scope=scope_of_node(texts[NodeField.INPUTS], notes),
    )


def scope_of_node(inputs: Sequence[str], notes: Mapping[str, str]) -> Scope | None:
    """The scope that the notes of a node state.

    A layer with a norm in it is noted as the norm. It has the module of its weight, whose name
    `features.0.0.weight` starts with it.
    """
    noted = scope_of_text(notes.get(_SCOPES, ""))
    if noted is None or _NORM_RULE not in notes.get(_RULES, ""):
        return noted
    module = "".join(inputs[_WEIGHT : _WEIGHT + 1]).rpartition(".")[0]
    return Scope(module=module, operator=None) if module else noted


def scope_of_text(text: str) -> Scope | None:
    """The scope in a list of names; `None` if the text is not such a list.

    `"['', 'blocks.0', 'blocks.0.mlp', 'mul_3']"` has the module `blocks.0.mlp` and the operator
    `mul`: the last name is the node's own.
    """
    if len(text) > _MOST_SCOPE_CHARACTERS:
        return None
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    if not isinstance(scopes, list) or not all(isinstance(one, str) for one in scopes[-2:]):
        return None
    if len(scopes) < 2:
        return None
    return Scope(module=scopes[-2], operator=_NUMBER.sub("", scopes[-1]))


# Which module each kernel of ONNX Runtime belongs to.
#
# The runtime fuses nodes and names the kernel after one of them, often after the last: a
# convolution with its activation is `relu_3_nchwc`. Such a kernel belongs to the node that does
# the work.

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

    def scopes_of(self, kernels: Sequence[tuple[str, str]]) -> list[tuple[Scope | None, bool]]:
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

    def _scope_of(self, node: str, operator: str, have_kernels: frozenset[str]) -> Scope | None:
        """The scope of the worker, or else that of the node that the kernel is named after."""
        worker = self.worker_of(node, operator, have_kernels)
        return self.nodes[worker].scope or self.nodes[node].scope


def _filled(known: Sequence[Scope | None]) -> list[Scope | None]:
    """Each missing value replaced by the last one before it."""
    last = next((one for one in known if one is not None), None)
    filled = []
    for one in known:
        last = last if one is None else one
        filled.append(last)
    return filled


class OnnxProfiler:
    """It fulfils `Profiler`. The worker's parent removes the folder of the profile."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="fleetrank-profile-")
        self.runner = OnnxRunner(profile_prefix=str(Path(folder, "ort")))
        self._nodes = NamedNodes.of([])

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact and the names of its modules."""
        model = self.runner.load(path, execution)
        self._nodes = NamedNodes.of(read_graph(Path(path)))
        return model

    def last_runs(self, count: int) -> list[list[Kernel]]:
        """Ends the profile and joins the kernels of the last runs to modules."""
        session = self.runner.session
        if session is None:
            raise BadOutputError("no model is loaded", "load one before")
        remedy = "free space in the temporary folder"
        with failing_as(BadOutputError, "ONNX Runtime's profile cannot be read", remedy):
            text = Path(session.end_profiling()).read_text(encoding="utf-8")
        return [_joined(run, self._nodes) for run in runs_of(text)[-count:]]


def _joined(run: Sequence[OnnxEvent], nodes: NamedNodes) -> list[Kernel]:
    scopes = nodes.scopes_of([(event.kernel, event.operator) for event in run])
    return [
        Kernel(
            node=event.kernel,
            module=None if scope is None else scope.module,
            operator=event.operator,
            kernel_ns=event.ns,
            source_operator=None if scope is None or is_inserted else scope.operator,
            is_inserted=is_inserted,
            output_bytes=event.output_bytes,
            weight_bytes=event.weight_bytes,
        )
        for event, (scope, is_inserted) in zip(run, scopes, strict=True)
    ]
