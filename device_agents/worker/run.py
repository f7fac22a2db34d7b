"""The runs of a loaded model: warm-up, timed runs alone or in blocks, runs for energy."""

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.measurement import (
    LOST_REMEDY,
    Block,
    Conditions,
    Energy,
    Measurement,
    WorkerFacts,
    says_device_lost,
)
from fleetrank.device_agents.contract.protocol import Turn, TurnReport
from fleetrank.device_agents.contract.runtime import Array, LoadedModel, Runner, SequenceModel
from fleetrank.device_agents.contract.task import BlockPolicy, MeasurePolicy, MeasureTask, Options
from fleetrank.device_agents.errors import (
    BadArtifactError,
    LostArtifactError,
    TransientError,
    UnsupportedError,
)
from fleetrank.device_agents.host.conditions import CpuTime, Shares, read_cpu_time, shares
from fleetrank.device_agents.host.control_groups import times_throttled
from fleetrank.device_agents.host.energy import (
    EnergySource,
    EnergyWindow,
    count_energy,
    judge_energy,
)
from fleetrank.device_agents.host.worker_process import (
    growth_bytes,
    involuntary_switches,
    usable_cpus,
)
from fleetrank.device_agents.profiling.profiler import PROFILERS, profile_runs, why_not_profiled
from fleetrank.device_agents.runtimes.runner import make_inputs
from fleetrank.device_agents.timing import (
    HalfWidthRule,
    TimedRuns,
    TimedSequences,
    Untimed,
    WarmUp,
    sequence_policy,
    time_block,
    time_for,
    time_runs,
    time_sequences,
    warm_up,
    warm_up_sequences,
)
from fleetrank.device_agents.worker.watch import Around, Turns, Watch, copy_ns
from fleetrank.foundation.errors import FleetError, is_out_of_memory
from fleetrank.foundation.files import open_regular, sha256_of
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import Origin, Status

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls

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
    use = Use()
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
    use = Use()
    use.begin()
    # Processes of one boot share the clock of a set; on Linux both are the same.
    clock = time.perf_counter_ns if turns is None else time.monotonic_ns
    found = time_for(model.run, clock, min_time_s, around)
    use.end()
    whole = Block(start_ns=found.start_ns, samples=len(found.runs.samples_ns), left_out_ns=())
    blocks = () if turns is None else (whole,)
    return replace(_with_use(found.runs, around, blocks, use), sustained_ns=found.wall_ns)


def _timed_sequences(sequences: "SequenceRuns", around: Around) -> Timed:
    use = Use()
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
    use, report = Use(), TurnReport()
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


def _with_use(runs: TimedRuns, around: Around, blocks: tuple[Block, ...], use: "Use") -> Timed:
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


class Use:
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


# Checks that the file is the right one, has the right batch, and runs at all.

State = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of content and of inode."""


def check_artifact(path: str, sha256: str) -> State:
    """Rejects a file that the task was not made for; returns the file's state before the check.

    Raises:
        LostArtifactError: the file is missing or has changed; the model is not at fault.
    """
    try:
        with open_regular(Path(path)) as file:
            state = _state(os.fstat(file.fileno()))
            found = sha256_of(file)
    except OSError as error:
        raise LostArtifactError(
            f"cannot read {path}: {error.strerror}", "resume the sweep, which exports it again"
        ) from error
    if found != sha256:
        raise LostArtifactError(
            f"{path} has changed: its sha256 is {found}, not {sha256}",
            "delete the file and resume the sweep, which exports it again",
        )
    return state


def admitted(runner: Runner, task: MeasureTask) -> tuple[str, State]:
    """Checks the files of a task; returns the path that may be loaded, and the file's state.

    Raises:
        LostArtifactError: a file is missing or has changed.
        BadArtifactError: a file from outside contains more than a network.
    """
    state = check_artifact(task.artifact_path, task.artifact_sha256)
    if task.weights_path is not None:
        check_artifact(task.weights_path, Path(task.weights_path).stem)
    if task.check_path is not None:
        check_artifact(task.check_path, Path(task.check_path).stem)
    path = task.artifact_path if task.is_trusted else runner.admit(task.artifact_path)
    return path, state


def check_unchanged(path: str, state: State) -> None:
    """Rejects a file that was changed or replaced while it was checked and loaded.

    Checks and runtimes open the file by its path, one after the other.

    Raises:
        LostArtifactError: it was changed or replaced.
    """
    try:
        found = _state(Path(path).stat())
    except OSError:
        found = None
    if found != state:
        raise LostArtifactError(
            f"{path} was changed while it was loaded", "resume the sweep, which measures it again"
        )


def _state(found: os.stat_result) -> State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def check_batch(inputs: Sequence[ModelInput], batch: int) -> None:
    """Rejects a file of fixed size whose batch differs from the one in the row.

    Raises:
        UnsupportedError: no input has this batch as its first size. For a batch of one, inputs may
            have no batch axis, so only images are checked.
    """
    first_sizes = [spec.shape[0] for spec in inputs if len(spec.shape) >= (1 if batch > 1 else 4)]
    if (batch > 1 or first_sizes) and batch not in first_sizes:
        raise UnsupportedError(
            f"the file is made for other batches than {batch}: its inputs begin with {first_sizes}",
            "export it with this batch or with a dynamic one",
        )


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


def run_once(model: LoadedModel) -> None:
    """Runs one inference; its failure is the artifact's failure.

    Raises:
        BadArtifactError: the runtime failed on it.
        MemoryError: an allocation failed.
    """
    try:
        model.run()
    except (FleetError, MemoryError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from error
        if says_device_lost(str(error)):
            raise TransientError(str(error), LOST_REMEDY) from error
        raise BadArtifactError(
            f"the runtime failed while running the file: {type(error).__name__}: {error}",
            "run the file by hand in its runtime; export it again if it fails there too",
        ) from error


# A repeat that finds out where the time goes, instead of measuring a latency.


def profile(
    task: MeasureTask, inherited: WorkerFacts, enter: Stage, walls: "Walls | None"
) -> Measurement:
    """Profiles the file of a task.

    Raises:
        LostArtifactError: the file is missing or has changed.
        UnsupportedError: the runtime reports no times of kernels.
        BadOutputError: its profile cannot be read.
    """
    enter("start")
    reason = why_not_profiled(task.execution)
    if reason is not None:
        raise UnsupportedError(reason, "profile it in another runtime, such as onnx")
    profiler = PROFILERS.load(task.execution.runtime)()
    path, state = admitted(profiler.runner, task)
    if walls is not None:
        walls.arm(profiler.runner.library.module)
    enter("load")
    start = time.perf_counter_ns()
    model = profiler.load(path, task.execution)
    load_ns = time.perf_counter_ns() - start
    if not task.execution.inputs:
        check_batch(model.inputs, task.execution.batch)
    enter("first_inference")
    model.set_inputs(make_inputs(model.inputs, task.seed))
    run_once(model)
    check_unchanged(task.artifact_path, state)
    enter("timed")
    found = profile_runs(profiler, model, task.policy)
    return Measurement(
        task_id=task.task_id,
        status=Status.OK,
        origin=Origin.MEASURED,
        load_ns=load_ns,
        profile=found,
        worker=facts_of(inherited, profiler.runner, model.settings, walls),
    )


# The runs of `generate` inside the worker: a prompt and its steps, with tokens made before.


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRuns:
    """A loaded decoder, its steps after each prompt, and the policy in sequences."""

    model: SequenceModel
    steps: int
    policy: MeasurePolicy

    def warm_up(self, untimed: Untimed) -> WarmUp:
        """Runs whole sequences until they are stable."""
        return warm_up_sequences(self.model, self.steps, time.perf_counter_ns, self.policy, untimed)

    def timed(self, untimed: Untimed) -> TimedSequences:
        """Times whole sequences."""
        return time_sequences(self.model, self.steps, time.perf_counter_ns, self.policy, untimed)


def sequence_runs(model: LoadedModel, task: MeasureTask) -> SequenceRuns | None:
    """Puts the tokens of a sequence into the runtime's memory; `None` for all other workloads.

    The tokens are made before, as no runtime takes them from its own logits: the times hold no
    sampling.

    Raises:
        UnsupportedError: the runtime has no states here, or the cell is part of a round.
    """
    workload = task.execution.workload
    if workload.steps is None or workload.length is None:
        return None
    apart = f"measure prefill@{workload.length} and decode@{workload.context_tokens}"
    if not isinstance(model, SequenceModel):
        raise UnsupportedError(f"{workload} cannot run on backend {task.execution.backend}", apart)
    if task.blocks is not None:
        raise UnsupportedError(
            f"{workload} cannot take turns with other cells: a sequence is not interrupted",
            f"{apart}, or leave out the rounds",
        )
    model.set_inputs(make_inputs(_at(model.inputs, workload.length, workload.length), task.seed))
    model.set_steps(
        [_step(model.inputs, workload.length + n, task.seed + n) for n in range(workload.steps)]
    )
    return SequenceRuns(
        model=model,
        steps=workload.steps,
        policy=sequence_policy(task.policy, workload.steps),
    )


def _step(specs: Sequence[ModelInput], place: int, seed: int) -> list[Array]:
    """The inputs of the step at a position, without the states."""
    fixed = [spec for spec in specs if spec.state is None]
    return make_inputs(_at(fixed, place + 1, 1), seed)


def _at(specs: Sequence[ModelInput], end: int, tokens: int) -> list[ModelInput]:
    """The inputs for so many tokens that end before a position; their last axis counts tokens."""
    return [
        spec
        if spec.state is not None
        else replace(
            spec,
            shape=(*spec.shape[:-1], tokens),
            values=spec.values
            if spec.values.counts_to is None
            else replace(spec.values, counts_to=end),
        )
        for spec in specs
    ]
