"""Reads from `benchmark_model`'s output how much of a graph a LiteRT delegate executes."""

import re
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.device_agents.android.runners.program_figures import not_a_result

_KERNELS = {
    "xnnpack": "TfLiteXNNPackDelegate",
    "gpu": "TfLiteGpuDelegateV2",
    "nnapi": "TfLiteNnapiDelegate",
}
"""Backend to the name of its delegate in 'Replacing N out of M node(s)'."""
_NAMES = {"xnnpack": "XNNPACK", "gpu": "GPU", "nnapi": "NNAPI"}
"""Backend to the name of its delegate in 'Explicitly applied ...'."""

_REPLACED = re.compile(
    r"Replacing ([0-9]{1,9}) out of ([0-9]{1,9}) node\(s\) with delegate \(([^)\n]{0,64}+)\)"
)
_APPLIED = re.compile(
    r"(?:Explicitly applied|Applied) (\w{1,32}+) delegate"
    r"(?:, and the model graph will be (completely|partially))?"
)
_NOT_APPLIED = re.compile(
    r"Though (\w{1,32}+) delegate is explicitly applied, the model graph will not"
)


class Placement(StrEnum):
    """How much of the graph runs on the delegate."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    NONE = "none"
    UNKNOWN = "unknown"
    """The text does not contain it; builds before 2020 do not print it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The text's statements about one delegate.

    Attributes:
        node_share: nodes replaced by the delegate's kernels, as a share of all, 0 to 1.
    """

    placement: Placement
    node_share: float | None


def read_delegation(text: str, backend: str) -> Delegation:
    """Reads the placement of the backend's own delegate; other delegates are ignored.

    The sentence 'Though ... will not be executed' has priority over the count of nodes: NNAPI
    replaces all nodes first and gives them back if its driver rejects the model.

    Source: benchmark_tflite_model.cc of TensorFlow 1.15 to 2.20 and LiteRT.

    Raises:
        BadOutputError: more nodes are replaced than the graph has.
    """
    share = _node_share(text, _KERNELS[backend])
    if _NAMES[backend] in _NOT_APPLIED.findall(text):
        return Delegation(placement=Placement.NONE, node_share=0.0)
    said = [how for name, how in _APPLIED.findall(text) if name == _NAMES[backend]]
    return Delegation(placement=_placement(said, share), node_share=share)


def _placement(said: list[str], share: float | None) -> Placement:
    if "partially" in said:
        return Placement.PARTIAL
    if "completely" in said:
        return Placement.COMPLETE
    if share is None:
        return Placement.UNKNOWN
    if share == 0:
        return Placement.NONE
    return Placement.COMPLETE if share >= 1 else Placement.PARTIAL


def _node_share(text: str, kernel: str) -> float | None:
    counts = [(int(n), int(of)) for n, of, name in _REPLACED.findall(text) if name == kernel]
    if (wrong := next(((n, of) for n, of in counts if n > of), None)) is not None:
        raise not_a_result("{} of {} nodes are on the delegate".format(*wrong))
    n_all = sum(of for _n, of in counts)
    return sum(n for n, _of in counts) / n_all if n_all else None
