"""The parts of a sweep: its devices, cells, rounds and tasks, the skipped cells, and all keys."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Annotated, NamedTuple, Self

from fleetrank.analysis.stopping_rule import StoppingRule
from fleetrank.device_agents.contract.kind import HostShare, Traits
from fleetrank.device_agents.contract.task import (
    BlockPolicy,
    Execution,
    MeasurePolicy,
    Options,
    ReplicaPolicy,
    TokenCost,
)
from fleetrank.device_agents.hold import Reservation
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.formats import format_of
from fleetrank.foundation.inputs import IMAGE, WorkloadKind, axes_text
from fleetrank.foundation.user_file import Bytes, Key
from fleetrank.foundation.vocabulary import (
    INTEGERS,
    WEIGHT_BYTES,
    CpuChoice,
    Flag,
    FlopsMethod,
    Format,
    Origin,
    Precision,
)
from fleetrank.models.cards.card import LANGUAGE_RECIPES, SCALE_BYTES, Artifact, Cost, ExportRequest
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.networks.cost import VALUE_BYTES, call_cost, calls_of, known_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model x precision x runtime x device x options.

    Attributes:
        cell_key: hash of model card, weights, exporter options and `platform_key`; known before
            the export.
        platform_key: see `orchestrator.identity`.
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
    """

    device: str
    host: str
    host_hash: str | None = None
    counts_energy: bool = False
    is_here: bool = True
    peaks: Mapping[int, tuple[float, float]] = field(default_factory=dict)


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
class Plan:
    """All work of a sweep, decided before it starts; planning is pure.

    Attributes:
        max_attempts: maximum tries of one repeat if its failures are transient, at least 1.
        timeout_s: time limit of one repeat.
        memory_limit_bytes: limit of one worker; `None` lets the agent decide.
        canary_every: number of repeats on a phone between two runs of its canary.
        host_wait_s: maximum wait for a host that stopped answering; `HostsSpec` has the default.
        allows_takeover: an equal device may measure the pending repeats of an abandoned one.
        quiet_s: how long a CPU may ask for time while its host is busy; `None` measures at once.
        rounds: on devices whose cells can take turns; `None` measures one cell at a time.
        repeats_disturbed: a round that its host disturbed is measured again.
        until: when no more than the first repeats are needed; `None` measures all repeats.
    """

    name: str
    seed: int
    repeats: int
    max_attempts: int
    timeout_s: float
    memory_limit_bytes: int | None
    policy: MeasurePolicy
    canary_every: int
    host_wait_s: float
    cells: tuple[Cell, ...]
    skipped: tuple[SkippedCell, ...] = ()
    allows_takeover: bool = False
    rounds: RoundRules | None = None
    quiet_s: float | None = None
    repeats_disturbed: bool = False
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """The values needed to create a device's agent on its host.

    Attributes:
        origin: origin of its rows until the device has been queried.
        reserve: how to reserve it; `None` if it is always ours.
    """

    name: str
    kind: str
    options: Options = ()
    share: HostShare = HostShare.NONE
    origin: Origin = Origin.MEASURED
    reserve: Reservation | None = None


# Keys of platforms, cells and rows, equal on every host, and the ids of tasks.


class RowKey(NamedTuple):
    """The key of a stored row; its fields are the columns `ROW_KEY`."""

    sweep_id: str
    cell_key: str
    repeat: int
    attempt: int

    @classmethod
    def of(cls, row: Mapping[str, object]) -> Self:
        """The key of a row.

        Raises:
            ValueError: the row is not one of the table.
        """
        key = (row.get("sweep_id"), row.get("cell_key"), row.get("repeat"), row.get("attempt"))
        match key:
            case (str(sweep_id), str(cell_key), int(repeat), int(attempt)):
                return cls(sweep_id, cell_key, repeat, attempt)
        raise ValueError(f"not the key of a row: {key}")

    @property
    def label(self) -> str:
        """The key in messages about one sweep; repeats and attempts count from 1."""
        return f"cell {self.cell_key}, repeat {self.repeat + 1}, attempt {self.attempt + 1}"


CELL_KEY_DIGITS = 16
"""64 bits: the probability of a collision among a million cells is 3e-8."""


def platform_key(device: str, execution: Execution) -> str:
    """Readable name of a platform: `device/runtime/backend/mode/precision/bN/tN/affinity/options`.

    Affinity is what the sweep asked for: `afirst_cores`, `afree` if the system decides, or CPU
    numbers as in `a0,1`, which a list and a phone's cluster have. First cores have other numbers
    under another CPU mask, so their numbers are a fact of the row. Options are sorted JSON. Sizes
    of named axes follow where a model has some: `/seq=128`. Versions are stored in rows and are
    not part of the name.
    """
    affinity = affinity_text(execution.affinity)
    if execution.cpu_choice is CpuChoice.FIRST_CORES:
        affinity = CpuChoice.FIRST_CORES.value
    return row_platform_key(
        {
            "device": device,
            "runtime": execution.runtime.value,
            "backend": execution.backend,
            "mode": execution.mode.value,
            "precision": execution.precision.value,
            "batch": execution.batch,
            "threads": execution.threads,
            "affinity": affinity,
            "options": canonical_json(dict(execution.options)),
            "axes": axes_text(execution.axes),
        }
    )


def row_platform_key(row: Mapping[str, object]) -> str:
    """The same name from a row of the table; values missing in an imported row become `?`."""
    known = {name: "?" if value is None else str(value) for name, value in row.items()}
    named = (known[name] for name in ("device", "runtime", "backend", "mode", "precision"))
    affinity = "free" if row.get("affinity") is None else known["affinity"]
    numbers = (f"b{known['batch']}", f"t{known.get('threads', '?')}", f"a{affinity}")
    axes = () if row.get("axes") is None else (known["axes"],)
    return "/".join((*named, *numbers, known["options"], *axes))


def affinity_text(cpus: tuple[int, ...] | None) -> str | None:
    """CPU numbers as the table stores them: `0,1`; `None` where the system chooses."""
    return None if cpus is None else ",".join(map(str, cpus))


def canonical_json(value: object) -> str:
    """JSON that is equal for equal values: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def cell_key(request: ExportRequest, platform: str) -> str:
    """The key of a cell, computed before the export; `platform` is a `platform_key`.

    Covers the same as the artifact cache (model card, weights, every option and the recipe of the
    export) and the platform; a change of any of them gives another key. Versions of exporters and
    runtimes are stored in the row instead.
    """
    text = canonical_json([request.key, platform])
    return hashlib.sha256(text.encode()).hexdigest()[:CELL_KEY_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskId:
    """Names one attempt; as text `sweep/cell/repeat/attempt`, then `/taker` if there is one.

    Attributes:
        repeat: 0-based.
        attempt: 0-based over the whole life of the sweep.
        taker: the device that measures in place of the cell's own; `None` for its own device.
    """

    sweep_id: str
    cell_key: str
    repeat: int
    attempt: int
    taker: str | None = None

    def __str__(self) -> str:
        """The form on the wire and in spools."""
        key = f"{self.sweep_id}/{self.cell_key}/{self.repeat}/{self.attempt}"
        return key if self.taker is None else f"{key}/{self.taker}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Reads the output of `str`; `None` if the text is not a task id."""
        match text.split("/"):
            case [sweep_id, cell_key, repeat, attempt, *takers] if len(takers) <= 1:
                pass
            case _:
                return None
        if not (repeat.isdecimal() and attempt.isdecimal()):
            return None
        found = cls(
            sweep_id=sweep_id,
            cell_key=cell_key,
            repeat=int(repeat),
            attempt=int(attempt),
            taker=takers[0] if takers else None,
        )
        return found if str(found) == text else None


def sweep_of(task_id: str) -> str:
    """Returns the sweep of a task; hosts ask this for each task, so nothing else is parsed."""
    return task_id.partition("/")[0]


_PROFILE = "profile"
_REPLICAS = "replicas"


def profiled_key(cell_key: str) -> str:
    """The key of the tasks that profile a cell; their names must differ from its measurements."""
    return f"{_PROFILE}-{cell_key}"


def replicated_key(cell_key: str, n_replicas: int) -> str:
    """The key of the tasks that run a cell in so many processes at once."""
    return f"{_REPLICAS}-{n_replicas}-{cell_key}"


def n_replicas_of(key: str) -> int:
    """The number of processes in a key of `replicated_key`."""
    return int(key.split("-")[1])


def cell_of_side_key(key: str) -> str:
    """The cell that a key of `profiled_key` or `replicated_key` is about."""
    return key.split("-", 2 if key.startswith(_REPLICAS) else 1)[-1]


# Which repeats form a round: cells that fit into the host's memory together.

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


# What the inferences of a language model cost, for devices that execute no file.

_USUAL_BYTES = 4
"""Of a value in a precision that does not store weights and cache in one type: caches are fp32."""


def cost_without_file(request: ExportRequest) -> Cost | None:
    """The cost of one inference as far as the card states it; `None` if an export must count it."""
    shape, calls = request.card.language, calls_of(request.workload)
    if shape is None or not calls or request.workload.kind is WorkloadKind.TRAIN:
        return known_cost(request.card, request.workload)
    sample = call_cost(shape, calls[-1])
    return Cost(macs=sample.macs, parameters=sample.parameters, method=FlopsMethod.FORMULA)


def without_file(format_: Format, cost: Cost) -> Artifact:
    """What stands for the file of a cell whose device opens none."""
    return Artifact(
        path="",
        sha256="",
        size_bytes=0,
        format=format_,
        cost=cost,
        versions=(),
        max_relative_error=None,
        is_trusted=True,
    )


def token_costs(shape: LanguageShape | None, execution: Execution) -> tuple[TokenCost, ...]:
    """The cost of one inference of the whole batch; for `generate` of prompt and step.

    Empty for models without a language shape, and for a step of training.
    """
    if shape is None or execution.workload.kind is WorkloadKind.TRAIN:
        return ()
    size = VALUE_BYTES.get(execution.precision, _USUAL_BYTES)
    # Of integers: weights of products alone; the other weights and the cache are fp32.
    matrix = None
    if execution.precision in INTEGERS:
        recipe = LANGUAGE_RECIPES.get((format_of(execution.runtime), execution.precision))
        matrix = WEIGHT_BYTES[execution.precision] + SCALE_BYTES.get(str(recipe), 0.0)
    costs = (
        call_cost(shape, call, execution.batch, size, matrix)
        for call in calls_of(execution.workload)
    )
    return tuple(
        TokenCost(
            macs=cost.macs * execution.batch,
            moved_bytes=cost.bytes_moved,
            weight_bytes=cost.weight_bytes,
            state_bytes=cost.state_bytes,
        )
        for cost in costs
    )
