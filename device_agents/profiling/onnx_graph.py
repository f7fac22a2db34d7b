"""The nodes of an ONNX file, with the modules that the exporter of PyTorch noted."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.binary.protobuf import Span, spans_of

_SCOPES = "pkg.torch.onnx.name_scopes"
"""Key of the list of names from the model to the node. Source: torch.onnx since PyTorch 2.5."""
_RULES = "pkg.onnxscript.rewriter.rule_name"
"""Key of the rules that the exporter made the node by. Source: onnxscript 0.5."""
_NORM_RULE = "FuseBatchNormInto"
"""Starts the rules that put a norm into the layer before it; the new node is noted as the norm."""
_WEIGHT = 1
"""Place of the weight among the inputs of a layer."""
_GRAPH, _NODE, _KEY, _VALUE = 7, 1, 1, 2
_INPUT, _OUTPUT, _NAME, _OPERATOR, _METADATA = 1, 2, 3, 4, 9
"""Field numbers. Source: onnx.proto of ONNX 1.16, the first with metadata of nodes."""
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
    for number, graph in spans_of(data, (0, len(data))):
        if number == _GRAPH:
            yield from (
                _node(data, span) for field, span in spans_of(data, graph) if field == _NODE
            )


def _node(data: bytes, node: Span) -> GraphNode:
    texts: dict[int, list[str]] = {_INPUT: [], _OUTPUT: [], _NAME: [], _OPERATOR: []}
    notes: dict[str, str] = {}
    for number, span in spans_of(data, node):
        if number in texts:
            texts[number].append(_text(data, span))
        elif number == _METADATA:
            fields = {field: _text(data, part) for field, part in spans_of(data, span)}
            notes[fields.get(_KEY, "")] = fields.get(_VALUE, "")
    return GraphNode(
        name="".join(texts[_NAME][-1:]),
        operator="".join(texts[_OPERATOR][-1:]),
        inputs=tuple(texts[_INPUT]),
        outputs=tuple(texts[_OUTPUT]),
        scope=scope_of_node(texts[_INPUT], notes),
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


def _text(data: bytes, span: Span) -> str:
    return data[span[0] : span[1]].decode("utf-8", "replace")
