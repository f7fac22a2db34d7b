"""The runs of a loaded model: warm-up, timed runs alone or in blocks, runs for energy."""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.measurement import (
    Block,
    Conditions,
    Energy,
    Measurement,
    WorkerFacts,
)
from fleetrank.device_agents.contract.protocol import Turn, TurnReport
from fleetrank.device_agents.contract.runtime import LoadedModel, Runner
from fleetrank.device_agents.contract.task import BlockPolicy, MeasurePolicy, MeasureTask, Options
from fleetrank.device_agents.linux.conditions import CpuTime, Shares, read_cpu_time, shares
from fleetrank.device_agents.linux.control_groups import times_throttled
from fleetrank.device_agents.linux.energy import (
    EnergySource,
    EnergyWindow,
    count_energy,
    judge_energy,
)
from fleetrank.device_agents.linux.worker_process import (
    growth_bytes,
    involuntary_switches,
    usable_cpus,
)
from fleetrank.device_agents.long_runs import time_for
from fleetrank.device_agents.round_blocks import time_block
from fleetrank.device_agents.timing import HalfWidthRule, TimedRuns, time_runs, warm_up
from fleetrank.device_agents.worker.watch import Around, Turns, Watch, copy_ns

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls
    from fleetrank.device_agents.timed_sequences import TimedSequences
    from fleetrank.device_agents.worker.generation import SequenceRuns

_IDLE_PAUSE_S = 0.005
"""One step of sleep, while idle power is counted."""
Stage = Callable[[str], None]
"""Called with the name of each stage before it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The process that asked for the repeat: it is informed of stages, and gives turns.

    Attributes:
        turns: `None` if the repeat is measured alone.
    """

    enter: Stage
    turns: "Turns | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model after its first inference.

    Attributes:
        seen: its times and memory so far.
        source: the device's energy counter; `None` if no energy is counted.
        idle: energy before the model was loaded.
        sequences: the runs of `generate`; `None` for all other workloads.
    """

    model: LoadedModel
    seen: Measurement
    source: EnergySource | None
    idle: EnergyWindow | None
    sequences: "SequenceRuns | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The timed runs, and what the system counted while they ran.

    Attributes:
        blocks: empty if the runs were not interrupted.
        n_throttled: periods in which a CPU quota stopped the process; 0 also if none is counted.
        used: shares of other processes and of the hypervisor in the time of these runs only.
        sequences: the same runs by sequence; `None` unless the workload is `generate`.
        sustained_ns: wall clock of runs for a given time; `None` for all others.
    """

    runs: TimedRuns
    device_samples_ns: tuple[int, ...] | None
    blocks: tuple[Block, ...]
    involuntary_switches: int
    n_throttled: int
    used: Shares
    sequences: "TimedSequences | None" = None
    sustained_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What was measured so far, and what its flags depend on besides."""

    seen: Measurement
    timed: Timed
    is_warmup_stable: bool


def run_loaded(
    loaded: Loaded, task: MeasureTask, watch: Watch, before: Conditions, caller: Caller
) -> Ran:
    """Warms up, times and counts energy; `before` are the conditions before loading."""
    caller.enter("warmup")
    model, clock = loaded.model, time.perf_counter_ns
    input_copy_ns = copy_ns(model)
    watch.start_run_memory()
    around = Around(watch, model)
    if loaded.sequences is None:
        warm = warm_up(model.run, clock, task.policy, around)
    else:
        warm = loaded.sequences.warm_up(around)
    peak = watch.peak_bytes()  # the samples of the timed runs are not memory of the model
    before = watch.warm(before)
    caller.enter("timed")
    around = Around(watch, model)
    if loaded.sequences is not None:
        timed = _timed_sequences(loaded.sequences, around)
    elif task.policy.min_time_s > 0:
        timed = _timed_long(model, task.policy.min_time_s, around, caller.turns)
    elif task.blocks is None or caller.turns is None:
        timed = _timed_alone(model, task.policy, around)
    else:
        timed = _timed_in_blocks(model, task.blocks, around, caller.turns)
    after = watch.conditions(timed.used)
    seen = replace(
        loaded.seen,
        warmup_ns=warm.ns,
        warmup_runs=warm.runs,
        samples_ns=timed.runs.samples_ns,
        stop_reason=timed.runs.stop_reason,
        **{name: getattr(timed, name) for name in ("device_samples_ns", "blocks", "sustained_ns")},
        input_copy_ns=input_copy_ns,
        # Column `peak_memory_bytes` of the table; `analysis.stored.columns` names each column.
        run_peak_memory_bytes=growth_bytes(loaded.seen.baseline_memory_bytes, peak),
        conditions_before=before,
        conditions_after=after,
        energy=_energy(loaded, task.policy, caller),
    )
    return Ran(seen=seen, timed=timed, is_warmup_stable=warm.is_stable)


def _timed_alone(model: LoadedModel, policy: MeasurePolicy, around: Around) -> Timed:
    use = SystemUse()
    use.begin()
    runs = time_runs(
        model.run,
        time.perf_counter_ns,
        HalfWidthRule(policy=policy),
        max_time_s=policy.max_time_s,
        untimed=around,
    )
    use.end()
    return _with_use(runs, around, (), use)


def _timed_long(
    model: LoadedModel, min_time_s: float, around: Around, turns: "Turns | None"
) -> Timed:
    """Runs for a given time; a process of a set first waits until all of them are warm."""
    if turns is not None:
        turns.wait(TurnReport())
    use = SystemUse()
    use.begin()
    # Processes of one boot share the clock of a set; on Linux both are the same.
    clock = time.perf_counter_ns if turns is None else time.monotonic_ns
    found = time_for(model.run, clock, min_time_s, around)
    use.end()
    whole = Block(start_ns=found.start_ns, samples=len(found.runs.samples_ns), left_out_ns=())
    blocks = () if turns is None else (whole,)
    return replace(_with_use(found.runs, around, blocks, use), sustained_ns=found.wall_ns)


def _timed_sequences(sequences: "SequenceRuns", around: Around) -> Timed:
    use = SystemUse()
    use.begin()
    timed = sequences.timed(around)
    use.end()
    runs = TimedRuns(samples_ns=timed.steps_ns, stop_reason=timed.stop_reason)
    return replace(_with_use(runs, around, (), use), sequences=timed)


def _timed_in_blocks(
    model: LoadedModel, policy: BlockPolicy, around: Around, turns: "Turns"
) -> Timed:
    samples: list[int] = []
    blocks: list[Block] = []
    use, report = SystemUse(), TurnReport()
    while (turn := turns.wait(report)) is Turn.BLOCK:
        use.begin()
        start_ns = time.monotonic_ns()
        runs = time_block(model.run, time.perf_counter_ns, policy, around)
        use.end()
        samples += runs.samples_ns
        block = Block(start_ns=start_ns, samples=len(runs.samples_ns), left_out_ns=runs.left_out_ns)
        blocks.append(block)
        report = TurnReport(block=block, samples_ns=runs.samples_ns)
    timed = TimedRuns(samples_ns=tuple(samples), stop_reason=turn.value)
    return _with_use(timed, around, tuple(blocks), use)


def _with_use(
    runs: TimedRuns, around: Around, blocks: tuple[Block, ...], use: "SystemUse"
) -> Timed:
    return Timed(
        runs=runs,
        device_samples_ns=around.samples_ns(),
        blocks=blocks,
        involuntary_switches=use.switches,
        n_throttled=use.throttled,
        used=use.shares(),
    )


def _energy(loaded: Loaded, policy: MeasurePolicy, caller: Caller) -> Energy | None:
    """Counts energy in separate runs, because reading a counter takes time."""
    if loaded.source is None:
        return None
    caller.enter("energy")
    clock, least_s = time.perf_counter_ns, policy.energy_s
    run = loaded.model.run if loaded.sequences is None else loaded.sequences.model.step
    busy = count_energy(loaded.source, run, clock, least_s=least_s)
    return judge_energy(loaded.source.method, loaded.idle, busy)


def idle_energy(source: EnergySource, policy: MeasurePolicy) -> EnergyWindow | None:
    """Energy of the device while this process sleeps."""
    return count_energy(source, _pause, time.perf_counter_ns, least_s=policy.energy_s)


def _pause() -> None:
    time.sleep(_IDLE_PAUSE_S)


class SystemUse:
    """What the system counts in one or several windows of time.

    Switches, periods in which a CPU quota stopped the process, and others' CPU time.
    """

    def __init__(self) -> None:
        self.switches = self.throttled = 0
        self._busy = self._steal = self._total = 0
        self._own_ticks = 0.0
        self._is_known = True

    def begin(self) -> None:
        """Begins a window."""
        self._throttled = times_throttled()
        self._switches, self._cpu, self._own = (
            involuntary_switches(),
            read_cpu_time(),
            _own_ticks(),
        )

    def end(self) -> None:
        """Ends the window and adds it to the earlier ones."""
        switches, cpu, own = involuntary_switches(), read_cpu_time(), _own_ticks()
        self.switches += switches - self._switches
        self._own_ticks += own - self._own
        self.throttled += (times_throttled() or 0) - (self._throttled or 0)
        if cpu is None or self._cpu is None:
            self._is_known = False
            return
        self._busy += cpu.busy - self._cpu.busy
        self._steal += cpu.steal - self._cpu.steal
        self._total += cpu.total - self._cpu.total

    def shares(self) -> Shares:
        """Shares of all windows together, as `conditions.shares` defines them."""
        if not self._is_known:
            return None
        zero = CpuTime(busy=0, steal=0, total=0)
        used = CpuTime(busy=self._busy, steal=self._steal, total=self._total)
        return shares(zero, used, self._own_ticks)


def _own_ticks() -> float:
    """CPU time of this process in the unit of `/proc/stat`."""
    times = os.times()
    return (times.user + times.system) * os.sysconf("SC_CLK_TCK")


def facts_of(
    inherited: WorkerFacts, runner: Runner, settings: Options, walls: "Walls | None"
) -> WorkerFacts:
    """What this process found about itself, with what it inherited."""
    return replace(
        inherited,
        runtime_version=runner.version(),
        python_version=platform.python_version(),
        settings=tuple(sorted(settings)),
        affinity=usable_cpus(),
        confinement=None if walls is None else walls.names,
    )
