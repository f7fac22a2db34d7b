"""What a sweep consists of: cells, the tasks made of them, and what was left out."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from device_agents.types import Execution, MeasurePolicy
from models.types import ExportRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model x precision x runtime x device x options.

    Attributes:
        cell_key: hash of model card, weights, exporter options and `platform_key`; known before
            anything is exported.
        platform_key: see `orchestrator.keys`.
        device: name of the registered device.
    """

    cell_key: str
    platform_key: str
    device: str
    export: ExportRequest
    execution: Execution

    @property
    def label(self) -> str:
        """For people: model and platform."""
        return f"{self.export.card.name} on {self.platform_key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCell:
    """A cell the specification names but nothing can measure, with the reason."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One fresh process measuring one cell: the unit of dispatch; `index` is 0-based."""

    cell: Cell
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a sweep will do, decided before anything runs; planning is pure.

    Attributes:
        max_attempts: tries at one repeat when its failures are transient, at least 1.
        timeout_s: limit of one repeat.
        memory_limit_bytes: limit of one worker; `None` leaves it to the agent.
        canary_every: repeats of a phone between two runs of its canary.
    """

    name: str
    seed: int
    repeats: int
    max_attempts: int
    timeout_s: float
    memory_limit_bytes: int | None
    policy: MeasurePolicy
    canary_every: int
    cells: tuple[Cell, ...]
    skipped: tuple[SkippedCell, ...] = ()

    def order(self) -> Iterator[Repeat]:
        """All first repeats in seeded random order, then all second repeats, and so on.

        A drift of the machine then does not line up with one model. Lazy: one round of cell
        numbers is held at a time.
        """
        for index in range(self.repeats):
            numbers = list(range(len(self.cells)))
            Random(f"{self.seed}/{index}").shuffle(numbers)  # noqa: S311 - an order, not a secret
            for number in numbers:
                yield Repeat(cell=self.cells[number], index=index)
