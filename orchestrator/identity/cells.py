"""The parts of a sweep: its devices, cells, their tasks, and the skipped cells."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.task import (
    BlockPolicy,
    Execution,
    MeasurePolicy,
    Options,
    ReplicaPolicy,
)
from fleetrank.foundation.inputs.workload import IMAGE
from fleetrank.foundation.vocabulary import Flag, Origin
from fleetrank.foundation.wording import count_of
from fleetrank.models.cards.card import ExportRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model x precision x runtime x device x options.

    Attributes:
        cell_key: hash of model card, weights, exporter options and `platform_key`; known before
            the export.
        platform_key: see `orchestrator.identity.keys`.
        device: name of the registered device.
        replicas: its tasks run several processes at once; `None` for all measurements.
    """

    cell_key: str
    platform_key: str
    device: str
    export: ExportRequest
    execution: Execution
    replicas: ReplicaPolicy | None = None

    @property
    def label(self) -> str:
        """Model, workload unless it is `image`, processes of a set, and platform, for display."""
        workload = self.execution.workload
        what = "" if workload == IMAGE else f" {workload}"
        how = ""
        if self.replicas is not None:
            how = f" in {count_of(self.replicas.count, 'process', 'processes')}"
        return f"{self.export.card.name}{what}{how} on {self.platform_key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCell:
    """A cell that the specification names but no device can measure, with the reason."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One fresh process measuring one cell: the unit of dispatch; `index` is 0-based."""

    cell: Cell
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFacts:
    """The values that all rows of one sweep share.

    Attributes:
        git_commit: commit of the workspace; `None` outside git.
    """

    sweep_id: str
    seed: int
    fleetrank_version: str
    git_commit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at one repeat.

    Attributes:
        number: 0-based over the whole life of the sweep; part of the row's key.
        n_tries: 0-based in this run; a resumed sweep starts again at 0.
        taker: the device that measures instead of the cell's own, abandoned device; `None` for
            the cell's own device.
    """

    repeat: Repeat
    number: int
    n_tries: int = 0
    taker: str | None = None

    @property
    def device(self) -> str:
        """The device that runs this try."""
        return self.taker or self.repeat.cell.device

    def flags(self, measured: Sequence[Flag]) -> tuple[Flag, ...]:
        """The flags of its row: those of the measurement, and whether another device made it."""
        return tuple(measured) if self.taker is None else (*measured, Flag.TAKEN_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlace:
    """The host of a device, and whether measuring on it needs a quiet host.

    Attributes:
        host: its name, which is not stored in rows.
        host_hash: its identifier in rows; `None` if the host has never answered.
        counts_energy: a repeat has time windows for energy measurement.
        is_here: it is the host that this process runs on.
        takes_turns: its agent can measure the cells of a round in turns.
        opens_files: its agent opens the exported file of a cell.
        origin: origin of the device's rows until the device has been queried.
        repeat_s: seconds of one repeat whatever it measures; `None` depends on the cell.
        peaks: (10^9 FLOP/s, 10^9 bytes/s) by number of threads, where they were measured.
    """

    device: str
    host: str
    needs_quiet: bool
    host_hash: str | None = None
    counts_energy: bool = False
    is_here: bool = True
    takes_turns: bool = False
    opens_files: bool = True
    origin: Origin = Origin.MEASURED
    repeat_s: float | None = None
    peaks: Mapping[int, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRules:
    """Which cells form a round, and how they take turns.

    Attributes:
        cells: at most this many.
        mixes_platforms: a round may hold cells of several platforms of a device, such as runtimes.
        memory_bytes: their workers take at most this much together, by an estimate.
    """

    blocks: BlockPolicy = field(default_factory=BlockPolicy)
    cells: int = 3
    mixes_platforms: bool = False
    memory_bytes: int = 4 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All work of a sweep, decided before it starts; planning is pure.

    Attributes:
        max_attempts: maximum tries of one repeat if its failures are transient, at least 1.
        timeout_s: time limit of one repeat.
        memory_limit_bytes: limit of one worker; `None` lets the agent decide.
        canary_every: number of repeats on a phone between two runs of its canary.
        host_wait_s: maximum wait for a host that stopped answering.
        allows_takeover: an equal device may measure the pending repeats of an abandoned one.
        quiet_s: how long a CPU may ask for time while its host is busy; `None` measures at once.
        rounds: on devices whose cells can take turns; `None` measures one cell at a time.
        repeats_disturbed: a round that its host disturbed is measured again.
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
    rounds: RoundRules | None = None
    quiet_s: float | None = None
    repeats_disturbed: bool = False

    @property
    def n_repeats(self) -> int:
        """Repeats of all cells together."""
        return len(self.cells) * self.repeats

    def order(self) -> Iterator[Repeat]:
        """All first repeats in seeded random order, then all second repeats, and so on.

        A drift of the machine then does not affect only one model. Lazy: only one round of cell
        numbers is in memory.
        """
        for index in range(self.repeats):
            numbers = list(range(len(self.cells)))
            Random(f"{self.seed}/{index}").shuffle(numbers)  # noqa: S311 - an order, not a secret
            for number in numbers:
                yield Repeat(cell=self.cells[number], index=index)


HOST_NAME = r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}"
"""Allowed host names: they become parts of paths and actor names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """The values needed to create a device's agent on its host.

    Attributes:
        origin: origin of its rows until the device has been queried.
    """

    name: str
    kind: str
    options: Options = ()
    share: HostShare = HostShare.NONE
    origin: Origin = Origin.MEASURED
