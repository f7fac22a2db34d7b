"""What a sweep consists of: cells, the tasks made of them, and what was left out."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from fleetrank.device_agents.contract.task import Execution, MeasurePolicy
from fleetrank.device_agents.contract.vocabulary import Origin
from fleetrank.models.cards.card import ExportRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model x precision x runtime x device x options.

    Attributes:
        cell_key: hash of model card, weights, exporter options and `platform_key`; known before
            anything is exported.
        platform_key: see `orchestrator.identity.keys`.
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
class Attempt:
    """One try at one repeat.

    Attributes:
        number: 0-based over the whole life of the sweep; part of the row's key.
        n_tries: 0-based in this run; a resumed sweep tries afresh.
        taker: the device that measures in place of the cell's own, which was given up; `None`
            for the cell's own.
    """

    repeat: Repeat
    number: int
    n_tries: int = 0
    taker: str | None = None

    @property
    def device(self) -> str:
        """The device it is made on."""
        return self.taker or self.repeat.cell.device


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlace:
    """Where a device hangs, and whether measuring on it needs its whole host quiet.

    Attributes:
        host: its name, which enters no row.
        host_hash: how rows name it; `None` while it has never answered.
        counts_energy: a repeat has windows in which its energy is counted.
        is_here: it is the host this process runs on.
        origin: of rows about it while it has not told what it is.
    """

    device: str
    host: str
    needs_quiet: bool
    host_hash: str | None = None
    counts_energy: bool = False
    is_here: bool = True
    origin: Origin = Origin.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a sweep will do, decided before anything runs; planning is pure.

    Attributes:
        max_attempts: tries at one repeat when its failures are transient, at least 1.
        timeout_s: limit of one repeat.
        memory_limit_bytes: limit of one worker; `None` leaves it to the agent.
        canary_every: repeats of a phone between two runs of its canary.
        host_wait_s: a host that fell silent is waited for so long.
        allows_takeover: an equal device may measure what one that was given up leaves.
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
    host_wait_s: float = 300.0
    allows_takeover: bool = False

    @property
    def n_repeats(self) -> int:
        """Repeats of all cells together."""
        return len(self.cells) * self.repeats

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
