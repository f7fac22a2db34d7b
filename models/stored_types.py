"""The number types that a model file contains, and the precision that follows from them."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleetrank.foundation.vocabulary import Precision

_PRECISION_OF: Mapping[str, Precision | None] = {
    "": None,
    "float64": Precision.FP64,
    "float32": Precision.FP32,
    "float16": Precision.FP16,
    "bfloat16": Precision.BF16,
    "int8": Precision.INT8,
    "uint8": Precision.INT8,
    "int4": Precision.INT4,
    "uint4": Precision.INT4,
}
"""Wider integers are indices, shapes and biases, so they say nothing about the arithmetic."""
OF_QUANTISED = frozenset({"", "int8", "uint8", "int4", "uint4"})
"""Types of quantised weights; the empty one is a type that is not known."""
FLOATS = dict.fromkeys(("float64", "float32", "float16", "bfloat16"), "float")
_INDICES = frozenset({"int32", "int64", "uint32", "uint64", "bool"})
Scale = tuple[float, int]
"""Scale and zero point: an integer q stands for scale x (q - zero point)."""
MOST_DIMENSIONS = 64
"""Eight times what runtimes support; the product of a hostile file's million sizes takes hours."""
_MOST_SCALES = 1000
"""In a row: four times the inputs and outputs of a decoder of 60 layers with its cache."""


def elements_of(sizes: Sequence[int]) -> int:
    """The number of elements of a tensor with these sizes.

    Raises:
        ValueError: it has too many dimensions.
    """
    if len(sizes) > MOST_DIMENSIONS:
        raise ValueError(f"a tensor has {len(sizes):,} dimensions")
    return math.prod(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTypes:
    """What a file says about its numbers; type names are those of NumPy, plus `bfloat16`.

    A type that is not known is an empty text.

    Attributes:
        weights: (type, number of elements) of each stored tensor.
        inputs, outputs: types of the border.
        scales: of the inputs and then the outputs, `None` where the file states none; empty for
            formats where they are not read.
        strings: names of inputs that take text.
        hides_weights: a part of the file cannot be read, such as the payload of a delegate.
        is_quantised: operators of the file quantise, dequantise or take quantised weights.
        parameters: number of trained numbers; `None` if they are not known.
    """

    weights: tuple[tuple[str, int], ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    scales: tuple[Scale | None, ...] = ()
    strings: tuple[str, ...] = ()
    hides_weights: bool = False
    is_quantised: bool = False
    parameters: int | None = None

    @property
    def precision(self) -> Precision | None:
        """The type of most weight elements, or of the border where no weights are stored.

        In a quantised file only quantised weights count: a table of tokens often stays in fp32 and
        has more elements. `None` if the file cannot say.
        """
        if self.hides_weights:
            return None
        weights = [one for one in self.weights if one[0] in _PRECISION_OF and one[1] > 0]
        if self.is_quantised:
            return _most(one for one in weights if one[0] in OF_QUANTISED)
        return _most(weights or ((name, 1) for name in (*self.inputs, *self.outputs) if name))

    @property
    def border(self) -> str | None:
        """`float`, or `int8 in, float out` where conversions of integers are not all in the time.

        Indices and masks do not count. `None` if a type is not known.
        """
        ends = {"in": self.inputs, "out": self.outputs}
        if not all(map(all, ends.values())) or not any(ends.values()):
            return None
        sides = {
            end: sorted({FLOATS.get(name, name) for name in names} - _INDICES)
            for end, names in ends.items()
        }
        if not any({*names} - {"float"} for names in sides.values()):
            return "float"
        return ", ".join(f"{'/'.join(names)} {end}" for end, names in sides.items() if names)

    @property
    def border_scales(self) -> str | None:
        """JSON object of lists `in` and `out` of `scales`; `None` if no scale is stated."""
        if not any(self.scales) or len(self.scales) > _MOST_SCALES:
            return None
        n_inputs = len(self.inputs)
        return json.dumps({"in": self.scales[:n_inputs], "out": self.scales[n_inputs:]})


def _most(types: Iterable[tuple[str, int]]) -> Precision | None:
    """The precision with the most elements; of two equally common ones the first."""
    counts: Counter[Precision | None] = Counter()
    for name, elements in types:
        if name in _PRECISION_OF:
            counts[_PRECISION_OF[name]] += elements
    found = counts.most_common(1)
    return found[0][0] if found else None


def first_scale(scale: float | None, zero: float | None) -> Scale | None:
    """`None` if one is missing, or is not a number."""
    if scale is None or zero is None or not math.isfinite(scale + zero):
        return None
    return float(f"{scale:.9g}"), int(zero)  # nine digits: it is stored in 32 bits
