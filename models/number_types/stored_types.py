"""The number types that a model file contains, and the precision that follows from them."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetrank.foundation.vocabulary import Precision

_PRECISION_OF = {
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
MOST_DIMENSIONS = 64
"""Eight times what runtimes support; the product of a hostile file's million sizes takes hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInput:
    """One input as a file states it.

    Attributes:
        dtype: name in NumPy, or `bfloat16`; empty for a type that is not a number.
        sizes: a text is a free size: inputs with the same text have the same size; an empty text
            says nothing.
    """

    name: str
    dtype: str
    sizes: tuple[int | str, ...]


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

    Attributes:
        weights: (type, number of elements) of each stored tensor.
        border: types of the inputs, then of the outputs.
        strings: names of inputs that take text.
        hides_weights: a part of the file cannot be read, such as the payload of a delegate, or the
            graph quantises weights while it runs.
    """

    weights: tuple[tuple[str, int], ...] = ()
    border: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()
    hides_weights: bool = False

    @property
    def precision(self) -> Precision | None:
        """The type of most weight elements, or of the border where no weights are stored.

        `None` if the file cannot say: it has neither, or hidden weights behind an fp32 border.
        """
        found = _most(self.weights) or _most((name, 1) for name in self.border)
        return None if self.hides_weights and found is Precision.FP32 else found


def _most(types: Iterable[tuple[str, int]]) -> Precision | None:
    """The precision with the most elements; of two equally common ones the first."""
    counts: Counter[Precision] = Counter()
    for name, elements in types:
        if name in _PRECISION_OF:
            counts[_PRECISION_OF[name]] += max(0, elements)
    found = counts.most_common(1)
    return found[0][0] if found and found[0][1] else None
