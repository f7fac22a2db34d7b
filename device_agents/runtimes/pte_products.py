"""Counts the products of a program, inside and outside of its XNNPACK delegates.

Source: executorch 1.5: schema/program.fbs, exir/_serialize/_program.py (the header), and
backends/xnnpack/serialization/schema.fbs. A union has two fields, the first its place from 1 on.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.runtime import Products
from fleetrank.foundation.flatbuffer import FlatBufferTable

if TYPE_CHECKING:
    pass

METHOD = "forward"
_PLANS, _PAYLOADS, _SEGMENTS = 1, 3, 4
_PLAN_NAME, _CHAINS, _OPERATORS, _DELEGATES = 0, 5, 6, 7
_INSTRUCTIONS, _KERNEL_CALL, _PROCESSED, _IS_SEGMENT = 2, 1, 1, 1
_SEGMENTS_MAGIC, _XNNPACK_MAGIC = b"eh00", b"XH00"
_OUTSIDE = frozenset({"aten::convolution", "aten::addmm", "aten::mm", "aten::linear"})
_FILTER_OF = {2: 1, 7: 16, 13: 16, 39: 16}
"""Field of the weights in XNNFullyConnected, and in three convolutions of XNNPACK."""
_XNODES, _XVALUES, _QUANTISED_VALUE, _ID = 1, 2, 2, 6


def products_of(data: bytes, method: str) -> Products:
    """Those of two computed tensors, as of attention, do not count."""
    program = FlatBufferTable.root(data)
    plans = {plan.text(_PLAN_NAME): plan for plan in program.tables(_PLANS)}
    plan = plans.get(method) or plans[METHOD]
    names = [operator.text(0) for operator in plan.tables(_OPERATORS)]
    calls = (one for chain in plan.tables(_CHAINS) for one in chain.tables(_INSTRUCTIONS))
    outside = sum(
        names[call.number(0)] in _OUTSIDE
        for one in calls
        if one.number(0, "<B") == _KERNEL_CALL and (call := one.table(1)) is not None
    )
    inside = [one for part in _payloads(data, program, plan) for one in _products_inside(part)]
    return Products(of_integers=sum(inside), all=len(inside) + outside)


def _payloads(data: bytes, program: FlatBufferTable, plan: FlatBufferTable) -> Iterator[bytes]:
    """The bytes of each delegate, which are in the program or in a segment behind it."""
    inline, segments = list(program.tables(_PAYLOADS)), list(program.tables(_SEGMENTS))
    behind = int.from_bytes(data[24:32], "little") if data[8:12] == _SEGMENTS_MAGIC else 0
    n_read = 0
    for delegate in plan.tables(_DELEGATES):
        if (processed := delegate.table(_PROCESSED)) is None:
            continue
        index = processed.number(1)
        if processed.number(0, "<B") == _IS_SEGMENT:
            start = behind + segments[index].number(0, "<Q")
            end = start + segments[index].number(1, "<Q")
        else:
            end = inline[index].end(0)
            start = end - inline[index].length(0)
        n_read += end - start
        if n_read > len(data):
            raise ValueError("delegates overlap, or end beyond the file")
        yield data[start:end]


def _products_inside(payload: bytes) -> Iterator[bool]:
    """Whether the weights of each product are integers."""
    at = int.from_bytes(payload[10:14], "little") if payload[4:8] == _XNNPACK_MAGIC else 0
    graph = FlatBufferTable.root(payload[at:])
    integers = set()
    for value in graph.tables(_XVALUES):
        if value.number(0, "<B") == _QUANTISED_VALUE and (found := value.table(1)) is not None:
            tensor = found.table(0)
            integers.add(None if tensor is None else tensor.number(_ID))
    for node in graph.tables(_XNODES):
        kind, found = node.number(0, "<B"), node.table(1)
        if kind in _FILTER_OF and found is not None:
            yield found.number(_FILTER_OF[kind]) in integers
