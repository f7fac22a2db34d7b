"""The operators of a `.tflite` file, and their times as `benchmark_model` prints them.

The nodes and the names are the file's own. The times share out a canned latency: by the kind of
operator and by the node's name.

Source of the text: stats_calculator.cc of TensorFlow 2.19 with columns of 40 characters,
profile_summary_formatter.cc; of the FlatBuffer: schema.fbs of LiteRT.
"""

import hashlib
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.flatbuffer import FlatBufferTable

_BUILTIN = {
    0: "ADD", 1: "AVERAGE_POOL_2D", 2: "CONCATENATION", 3: "CONV_2D", 4: "DEPTHWISE_CONV_2D",
    7: "EMBEDDING_LOOKUP", 9: "FULLY_CONNECTED", 14: "LOGISTIC", 17: "MAX_POOL_2D", 18: "MUL",
    19: "RELU", 21: "RELU6", 22: "RESHAPE", 23: "RESIZE_BILINEAR", 25: "SOFTMAX", 28: "TANH",
    32: "CUSTOM", 34: "PAD", 36: "GATHER", 39: "TRANSPOSE", 40: "MEAN", 41: "SUB", 42: "DIV",
    43: "SQUEEZE", 45: "STRIDED_SLICE", 47: "EXP", 49: "SPLIT", 53: "CAST", 58: "LESS",
    60: "PADV2", 63: "LESS_EQUAL", 64: "SELECT", 65: "SLICE", 66: "SIN", 74: "SUM", 75: "SQRT",
    76: "RSQRT", 78: "POW", 83: "PACK", 88: "UNPACK", 92: "SQUARE", 108: "COS", 117: "HARD_SWISH",
    123: "SELECT_V2", 126: "BATCH_MATMUL", 130: "BROADCAST_TO", 150: "GELU",
    190: "STABLEHLO_SCATTER", 206: "STABLEHLO_COMPOSITE",
}  # fmt: skip
_HEAVY = {"CONV_2D": 20.0, "DEPTHWISE_CONV_2D": 8.0, "FULLY_CONNECTED": 10.0, "BATCH_MATMUL": 10.0}
"""A product takes ten to twenty times as long as an operation on single elements."""
_XNNPACK = {
    "CONV_2D": "Convolution (NHWC, F32) IGEMM",
    "DEPTHWISE_CONV_2D": "Convolution (NHWC, F32) DWConv",
    "FULLY_CONNECTED": "Fully Connected (NC, F32) GEMM",
    "BATCH_MATMUL": "Batch Matrix Multiply (NC, F32) GEMM",
}
_SHARE = 0.98
"""The rest of an inference is between the nodes."""
_TOP = 10
"""Rows of the table of the slowest nodes. Source: stat_summarizer_options.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node: its type, and the tensors that it writes."""

    type: str
    outputs: tuple[str, ...]

    @property
    def weight(self) -> float:
        """How much of an inference it takes, compared with the other nodes."""
        digest = hashlib.sha256("".join(self.outputs).encode()).digest()
        own = 0.5 + int.from_bytes(digest[:4], "big") / 2**32
        return _HEAVY.get(self.type, 1.0) * own


def nodes_of(path: Path) -> tuple[Node, ...]:
    """The nodes of the first graph of a file, in their order.

    Raises:
        ValueError: the file is not such a FlatBuffer.
    """
    try:
        return _nodes(path.read_bytes())
    except (struct.error, IndexError, StopIteration) as error:
        raise ValueError(f"{path.name} has no operators: {error}") from error


def _nodes(data: bytes) -> tuple[Node, ...]:
    model = FlatBufferTable.root(data)
    codes = [_name_of(code) for code in model.tables(1)]
    graph = next(model.tables(2))
    tensors = [tensor.text(3) for tensor in graph.tables(0)]
    return tuple(
        Node(
            type=codes[operator.number(0)],
            outputs=tuple(tensors[place] for place in operator.numbers(2)),
        )
        for operator in graph.tables(3)
    )


def _name_of(code: FlatBufferTable) -> str:
    number = max(code.number(0, "<b"), code.number(3, "<i"))
    return code.text(1) or _BUILTIN.get(number, f"BUILTIN_{number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    type: str
    name: str
    us: int


def profile_text(nodes: Sequence[Node], timed_us: Sequence[int], *, delegate: str | None) -> str:
    """What the program prints at its end.

    Args:
        nodes: of `nodes_of`.
        timed_us: of the timed runs.
        delegate: the type of the delegate's node, which takes all nodes; `None` without one.
            XNNPACK reports its own operators.
    """
    mean_us = sum(timed_us) / len(timed_us)
    noise = random.Random(str(timed_us))
    weights = [node.weight * noise.uniform(0.97, 1.03) for node in nodes]
    times_us = [round(_SHARE * mean_us * weight / sum(weights)) for weight in weights]
    return (
        "INFO: Profiling Info for Benchmark Initialization:\n"
        f"{_table([_Row(type='AllocateTensors', name='AllocateTensors/0', us=900)], 1)}"
        "INFO: Operator-wise Profiling Info for Regular Benchmark Runs:\n"
        f"{_table(_rows(nodes, times_us, delegate), len(timed_us))}"
    )


def _rows(nodes: Sequence[Node], times_us: Sequence[int], delegate: str | None) -> list[_Row]:
    names = [f"[{', '.join(node.outputs)}]:{place}" for place, node in enumerate(nodes)]
    if delegate is None:
        timed = zip(nodes, names, times_us, strict=True)
        return [_Row(type=node.type, name=name, us=us) for node, name, us in timed]
    if delegate != "TfLiteXNNPackDelegate":
        last = f"{names[-1].rpartition(':')[0]}:{len(nodes)}"
        return [_Row(type=delegate, name=last, us=sum(times_us))]
    types = [
        _XNNPACK.get(node.type, f"{node.type.replace('_', ' ').title()} (ND, F32)")
        for node in nodes
    ]
    return [
        _Row(type=kind, name=f"Delegate/{kind}:{place}", us=us)
        for place, (kind, us) in enumerate(zip(types, times_us, strict=True))
    ]


def _table(rows: Sequence[_Row], runs: int) -> str:
    total_us = max(1, sum(row.us for row in rows))
    slowest = sorted(rows, key=lambda row: -row.us)[:_TOP]
    return (
        _titled("Run Order", rows, total_us)
        + _titled("Top by Computation Time", slowest, total_us)
        + f"Number of nodes executed: {len(rows)}\n"
        f"Timings (microseconds): count={runs} curr={total_us}\n"
        "Memory (bytes): count=0\n"
        f"{len(rows)} nodes observed\n\n\n\n"
    )


def _titled(title: str, rows: Sequence[_Row], total_us: int) -> str:
    line = "=" * 30
    text = [
        f"{line} {title} {line}",
        f"\t{'[node type]':>40}\t{'[first]':>9}\t{'[avg ms]':>9}\t{'[%]':>8}"
        f"\t{'[cdf%]':>8}\t{'[mem KB]':>10}\t{'[times called]':>9}\t[Name]",
    ]
    before_us = 0
    for row in rows:
        before_us += row.us
        share, so_far = 100 * row.us / total_us, 100 * before_us / total_us
        text.append(
            f"\t{row.type:>40}\t{row.us / 1000:>9.3f}\t{row.us / 1000:>9.3f}"
            f"\t{share:>7.3f}%\t{so_far:>7.3f}%\t{0:>10.3f}\t{1:>9}\t{row.name}"
        )
    return "\n".join(text) + "\n\n"
