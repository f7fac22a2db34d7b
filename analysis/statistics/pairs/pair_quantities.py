"""The quantities in which two models can be compared."""

from dataclasses import dataclass

from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What is compared, and how sentences say it; smaller is better.

    Attributes:
        name: also that of the panel's array.
        column: of the stored rows.
        per_unit: what one of the unit is in the column's own.
        ratio: how A, here and by a ratio above 1, differs from B.
        kept, reversed: how the one who speaks first in `ratio` is elsewhere.
        better: A where its order is kept.
        best: the first of several.
    """

    name: str
    column: str
    unit: str
    per_unit: float
    question: str
    ratio: str
    kept: str
    reversed: str
    better: str
    best: str


def _consumed(name: str, column: str, unit: str, per_unit: float) -> Quantity:
    return Quantity(
        name=name,
        column=column,
        unit=unit,
        per_unit=per_unit,
        question=f"Does {{a}} need less {name} than {{b}} elsewhere, too?",
        ratio=f"{{b}} needs {{ratio:.2f}} times the {name} of {{a}}",
        kept="also more",
        reversed="less",
        better=f"needs less {name}",
        best=f"needs the least {name}",
    )


QUANTITIES = {
    "latency": Quantity(
        name="latency",
        column="latency_p50_ns",
        unit="ms",
        per_unit=NS_PER_MS,
        question="Is {a} faster than {b} elsewhere, too?",
        ratio="{a} is {ratio:.2f} times as fast as {b}",
        kept="also faster",
        reversed="slower",
        better="is faster",
        best="is the fastest",
    ),
    "memory": _consumed("memory", "peak_memory_bytes", "MiB", BYTES_PER_MIB),
    "energy": _consumed("energy", "energy_mj", "mJ", 1.0),
}
