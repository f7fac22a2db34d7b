"""The parts of a sweep: its devices, cells, rounds and tasks, and the skipped cells."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Annotated, Literal

from fleetrank.analysis.stopping_rule import StoppingRule
from fleetrank.device_agents.contract.kind import Traits
from fleetrank.device_agents.contract.task import (
    BlockPolicy,
    Execution,
    MeasurePolicy,
    RepeatLimits,
    Seconds,
    TokenCost,
)
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Bytes, Key
from fleetrank.foundation.vocabulary import Flag, Precision
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import IMAGE
from fleetrank.models.cards.card import ExportRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model x precision x runtime x device x options.

    Attributes:
        cell_key: hash of model card, weights, exporter options and `platform_key`; known before
            the export.
        platform_key: see `orchestrator.identity`.
        device: name of the registered device.
        costs: of one inference of a language model, as `token_costs`; empty for all others.
    """

    cell_key: str
    platform_key: str
    device: str
    export: ExportRequest
    execution: Execution
    costs: tuple[TokenCost, ...] = ()

    @property
    def label(self) -> str:
        """Model, workload unless it is `image`, processes of a set, and platform, for display."""
        workload = self.execution.workload
        what = "" if workload == IMAGE else f" {workload}"
        how = ""
        if (replicas := self.execution.replicas) is not None:
            how = f" in {count_of(replicas.count, 'process', 'processes')}"
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
        stopping_rule: a `StoppingRule` as text; `None` if the number of repeats was fixed.
    """

    sweep_id: str
    seed: int
    fleetrank_version: str
    git_commit: str | None
    stopping_rule: str | None = None


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
class DevicePlace(Traits):
    """A device with its traits and its host.

    Attributes:
        host: its name, which is not stored in rows.
        host_hash: its identifier in rows; `None` if the host has never answered.
        counts_energy: a repeat has time windows for energy measurement.
        is_here: it is the host that this process runs on.
        peaks: (10^9 FLOP/s, 10^9 bytes/s) by number of threads, where they were measured.
        has_power: a command can switch it off and on.
        ties: as of `DeviceSpec`.
    """

    device: str
    host: str
    host_hash: str | None = None
    counts_energy: bool = False
    is_here: bool = True
    peaks: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    has_power: bool = False
    ties: frozenset[object] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRules(BlockPolicy):
    """Cells of one platform, in any precision, take turns in blocks of timed runs."""

    cells: Annotated[int, Key("most cells in one round", ge=2, le=16)] = 3
    mix_platforms: Annotated[
        bool,
        Key(
            "let cells of different platforms of a device, such as runtimes, share a round",
        ),
    ] = False
    memory_bytes: Annotated[
        Bytes,
        Key(
            "memory of all workers of a round together, by an estimate, such as '4GiB'; a larger "
            "round is split",
            ge=2**20,
            lt=2**63,
        ),
    ] = 4 * 1024**3

    @property
    def blocks(self) -> BlockPolicy:
        """The part that a worker needs."""
        return BlockPolicy(**{one.name: getattr(self, one.name) for one in fields(BlockPolicy)})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRules:
    """Settings for the hosts of devices."""

    __pydantic_config__ = NO_OTHER_KEYS

    silent_s: Annotated[
        Seconds, Key("a host that has not answered for this time is considered lost")
    ] = 30.0
    wait_s: Annotated[
        Seconds,
        Key(
            "maximum wait for a lost or not yet available host; then its devices are abandoned and "
            "left to a resume"
        ),
    ] = 300.0
    takeover: Annotated[
        bool,
        Key("let an equal device measure the pending repeats of an abandoned device"),
    ] = False
    join: Annotated[
        bool,
        Key("use the abandoned devices of a host as soon as it joins, while the sweep runs"),
    ] = False
    quiet: Annotated[
        Literal["flag", "wait", "refuse", "retry"],
        Key(
            "what to do before a repeat on a CPU whose host is busy: measure and flag the row "
            "busy_host, wait for quiet_s at most, or refuse at once; a refused repeat is left to a "
            "resume. retry measures, and measures a round again if its host disturbed it, with at "
            "most limits.max_attempts rounds; all of them are stored, and the last one counts"
        ),
    ] = "flag"
    quiet_s: Annotated[
        Seconds, Key("maximum wait for a quiet host; then the repeat is refused")
    ] = 600.0

    def longest_quiet_s(self) -> float | None:
        """How long to wait for a quiet host; `None` does not ask whether it is quiet."""
        return {"wait": self.quiet_s, "refuse": 0.0}.get(self.quiet)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All work of a sweep, decided before it starts; planning is pure.

    Attributes:
        policy, limits, hosts: those of the sweep's file.
        canary_every: number of repeats on a phone between two runs of its canary.
        rounds: on devices whose cells can take turns; `None` measures one cell at a time.
        until: when no more than the first repeats are needed; `None` measures all repeats.
    """

    name: str
    seed: int
    repeats: int
    policy: MeasurePolicy
    canary_every: int
    cells: tuple[Cell, ...]
    skipped: tuple[SkippedCell, ...] = ()
    limits: RepeatLimits = field(default_factory=RepeatLimits)
    hosts: HostRules = field(default_factory=HostRules)
    rounds: RoundRules | None = None
    until: StoppingRule | None = None

    @property
    def least_repeats(self) -> int:
        """Repeats of each cell that do not depend on what is measured."""
        return self.repeats if self.until is None else self.until.first

    @property
    def n_repeats(self) -> int:
        """Those of all cells together."""
        return len(self.cells) * self.least_repeats

    def order(self, index: int) -> Iterator[Repeat]:
        """The repeats with this index in seeded random order.

        All first repeats come before all second ones: a drift of the machine then does not affect
        only one model.
        """
        numbers = list(range(len(self.cells)))
        Random(f"{self.seed}/{index}").shuffle(numbers)  # noqa: S311 - an order, not a secret
        for number in numbers:
            yield Repeat(cell=self.cells[number], index=index)


HOST_NAME = r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}"
"""Allowed host names: they become parts of paths and actor names."""


_FILE_COPIES = 3
"""A loaded model is assumed to take this many times its file: the file, the weights in the
runtime's own layout, and activations. Not measured."""
_PROCESS_BYTES = 300 * 1024 * 1024
"""Assumed for interpreter and runtime of one worker. Not measured."""


def loaded_bytes(file_bytes: int) -> int:
    """Memory of one worker with its model, by an estimate."""
    return _PROCESS_BYTES + _FILE_COPIES * file_bytes


def rounds(
    plan: Plan, rules: RoundRules, file_bytes: Mapping[ExportRequest, int], index: int
) -> Iterator[tuple[Repeat, ...]]:
    """The repeats with this index as rounds in seeded random order.

    The cells of a platform, whatever their precision, are dealt to new rounds for each repeat, so
    that every two of them meet in some round.

    Args:
        plan: with the cells of one device.
        rules: how many cells a round has.
        file_bytes: size of each cell's file.
        index: of all repeats.
    """
    platforms: dict[object, list[Cell]] = defaultdict(list)
    for cell in plan.cells:
        platforms[company(cell, rules)].append(cell)
    random = Random(f"{plan.seed}/{index}/rounds")  # noqa: S311 - an order, not a secret
    groups = [
        group
        for cells in platforms.values()
        for group in _dealt(rules, random.sample(cells, len(cells)), file_bytes)
    ]
    random.shuffle(groups)
    for group in groups:
        yield tuple(Repeat(cell=cell, index=index) for cell in group)


def contest_of(rule: StoppingRule, cell: Cell) -> str:
    """Equal for cells that a stopping rule compares with each other."""
    return rule.contest(cell.platform_key, str(cell.execution.workload))


def company(cell: Cell, rules: RoundRules) -> object:
    """Equal for cells of a device that may meet; a sequence is not interrupted, so it is alone."""
    if cell.execution.workload.steps is not None:
        return cell.cell_key
    # Sizes of inputs belong to the model; what a precision gains is a ratio inside rounds, too.
    alike = replace(cell.execution, inputs=(), precision=Precision.FP32)
    return None if rules.mix_platforms else alike


def _dealt(
    rules: RoundRules, cells: list[Cell], file_bytes: Mapping[ExportRequest, int]
) -> Iterator[list[Cell]]:
    """Deals shuffled cells to groups of nearly equal size that fit; a large cell is alone."""
    n_groups = -(-len(cells) // rules.cells)
    for number in range(n_groups):
        group: list[Cell] = []
        used = 0
        for cell in cells[number::n_groups]:
            needed = loaded_bytes(file_bytes[cell.export])
            if group and used + needed > rules.memory_bytes:
                yield group
                group, used = [], 0
            group.append(cell)
            used += needed
        yield group
