"""The nodes of an ONNX file, with the modules that the exporter of PyTorch noted."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.onnx_file import NODES, NodeField, onnx_graph, text_of
from fleetrank.foundation.protobuf import Span, spans_of

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
class NodeScope:
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
    scope: NodeScope | None


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


def scope_of_node(inputs: Sequence[str], notes: Mapping[str, str]) -> NodeScope | None:
    """The scope that the notes of a node state.

    A layer with a norm in it is noted as the norm. It has the module of its weight, whose name
    `features.0.0.weight` starts with it.
    """
    noted = scope_of_text(notes.get(_SCOPES, ""))
    if noted is None or _NORM_RULE not in notes.get(_RULES, ""):
        return noted
    module = "".join(inputs[_WEIGHT : _WEIGHT + 1]).rpartition(".")[0]
    return NodeScope(module=module, operator=None) if module else noted


def scope_of_text(text: str) -> NodeScope | None:
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
    return NodeScope(module=scopes[-2], operator=_NUMBER.sub("", scopes[-1]))
