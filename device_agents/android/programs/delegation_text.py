"""Reads from the text of `benchmark_model` how much of the graph its delegate runs."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from fleetrank.device_agents.android.programs.delegate_flags import EXTERNAL
from fleetrank.device_agents.android.programs.program_text import not_a_result

_KERNELS = {
    "xnnpack": "TfLiteXNNPackDelegate",
    "gpu": "TfLiteGpuDelegateV2",
    "nnapi": "TfLiteNnapiDelegate",
}
"""Backend to the name of its delegate in sentences that count nodes."""
_BUILT_IN = frozenset(
    {*_KERNELS.values(), "TfLiteHexagonDelegate", "Hexagon", "TfLiteFlexDelegate"}
)
"""Delegates that a program can contain; every other name is that of an external one."""
_NAMES = {"xnnpack": "XNNPACK", "gpu": "GPU", "nnapi": "NNAPI", EXTERNAL: "EXTERNAL"}
"""Backend to the name of its delegate in 'Explicitly applied ...'."""
_REPLACED = re.compile(
    r"Replacing ([0-9]{1,9}) out of ([0-9]{1,9}) node\(s\) with delegate \(([^)\n]{0,64}+)\)"
)
_TAKEN = re.compile(
    r"([\w.-]{1,64}+)(?: delegate)?: ([0-9]{1,9}) nodes delegated out of ([0-9]{1,9}) nodes"
)
"""A delegate's own sentence, such as 'TfLiteQnnDelegate delegate: 3 nodes ...'.

Source: simple_delegate.cc of LiteRT, QNN's text in tensorflow issue 83344."""
_APPLIED = re.compile(
    r"(?:Explicitly applied|Applied) (\w{1,32}+) delegate"
    r"(?:, and the model graph will be (completely|partially))?"
    r"(?:[^\n]{0,40}? w/ ([0-9]{1,9}) delegate kernels)?"
)
"""The kernels are nodes of the executed graph that belong to the delegate."""
_NOT_APPLIED = re.compile(
    r"Though (\w{1,32}+) delegate is explicitly applied, the model graph will not"
)
_NNAPI_ERROR = "nnapi error"
"""The start of its loader's messages: its library, or a function that it needs, is missing.

Source: nnapi_implementation.cc of TensorFlow."""


class Placement(StrEnum):
    """How much of the graph runs on the delegate."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    NONE = "none"
    UNKNOWN = "unknown"
    """The text proves nothing: it has no such sentence, or says `partially` without a number.

    Builds before 2021 say `partially` also where the delegate took no node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The text's statements about one delegate.

    Attributes:
        backend_nodes: nodes replaced by the delegate's kernels; `None` if no count is printed.
        graph_nodes: all nodes.
    """

    placement: Placement
    backend_nodes: int | None
    graph_nodes: int | None

    @property
    def node_share(self) -> float | None:
        """Nodes on the delegate as a share of all, 0 to 1; `None` without a count."""
        if self.backend_nodes is None or not self.graph_nodes:
            return None
        return self.backend_nodes / self.graph_nodes


def read_delegation(text: str, backend: str) -> Delegation:
    """Reads the placement of the backend's own delegate; other delegates are ignored.

    The sentence 'Though ... will not be executed' has priority over the count of nodes: NNAPI
    replaces all nodes first and gives them back if its driver rejects the model. NNAPI that is not
    on the phone is applied too, and takes nothing.

    Source: benchmark_tflite_model.cc of TensorFlow 1.15 to 2.20 and LiteRT.

    Raises:
        BadOutputError: more nodes are replaced than the graph has.
    """
    taken, n_all = _nodes(text, backend)
    counted = Delegation(placement=Placement.NONE, backend_nodes=taken, graph_nodes=n_all)
    is_absent = backend == "nnapi" and _NNAPI_ERROR in text
    if is_absent or _NAMES[backend] in _NOT_APPLIED.findall(text):
        return replace(counted, backend_nodes=None if n_all is None else 0)
    said = {how for name, how, _ in _APPLIED.findall(text) if name == _NAMES[backend]}
    kernels = sum(int(n or 0) for name, _, n in _APPLIED.findall(text) if name == _NAMES[backend])
    placement = _placement(said, counted.node_share, has_kernels=kernels > 0)
    return replace(counted, placement=placement)


def has_nodes_on(text: str, backend: str) -> bool:
    """Whether the text shows that the backend's delegate runs at least one node."""
    return bool(_nodes(text, backend)[0])


def _placement(said: set[str], share: float | None, *, has_kernels: bool) -> Placement:
    if share == 0:
        return Placement.NONE
    if "partially" in said:
        return Placement.UNKNOWN if share is None and not has_kernels else Placement.PARTIAL
    if "completely" in said:
        return Placement.COMPLETE
    if share is None:
        return Placement.UNKNOWN
    return Placement.COMPLETE if share >= 1 else Placement.PARTIAL


def _nodes(text: str, backend: str) -> tuple[int | None, int | None]:
    """Nodes on the delegate, and all nodes."""
    replaced = _REPLACED.findall(text)
    counts = [(int(n), int(of)) for n, of, name in replaced if _is_of(name, backend)]
    if not counts:
        # The interpreter's own sentence is not in the text of every build.
        own = _TAKEN.findall(text)
        counts = [(int(n), int(of)) for name, n, of in own if _is_of(name, backend)]
    if (wrong := next(((n, of) for n, of in counts if n > of), None)) is not None:
        raise not_a_result("{} of {} nodes are on the delegate".format(*wrong))
    n_all = sum(of for _n, of in counts)
    return (sum(n for n, _of in counts), n_all) if n_all else (None, None)


def _is_of(kernel: str, backend: str) -> bool:
    """Whether a delegate's kernel belongs to the backend; the name of an external one is free."""
    if backend == EXTERNAL:
        return kernel not in _BUILT_IN
    return kernel == _KERNELS[backend]
