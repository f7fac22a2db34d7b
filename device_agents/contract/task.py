"""The request to an agent; the answer is a `Measurement`, a separate type.

`None` means not known or not applicable.
"""

from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

from fleetrank.foundation.inputs import Axes, ModelInput
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Bytes, Key
from fleetrank.foundation.vocabulary import CpuChoice, Mode, Precision, Runtime
from fleetrank.foundation.workload import IMAGE, Workload

OptionValue = str | int | float | bool
Options = tuple[tuple[str, OptionValue], ...]
"""Runtime options that differ from the default, sorted by name; hashable, which a dict is not."""


LONGEST_S = 1e8
"""Three years; larger values overflow the system's timers."""
Count = Annotated[int, Key(ge=1, le=10**7)]
Seconds = Annotated[float, Key(gt=0, le=LONGEST_S)]
SecondsOrNone = Annotated[float, Key(ge=0, le=LONGEST_S)]
"""Zero switches the rule off."""
Share = Annotated[float, Key(gt=0, lt=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePolicy:
    """When warm-up and timing end; the defaults are those of the measuring protocol."""

    __pydantic_config__ = NO_OTHER_KEYS

    min_warmup_runs: Annotated[Count, Key("minimum number of warm-up runs")] = 10
    min_warmup_s: Annotated[SecondsOrNone, Key("minimum warm-up time")] = 0.5
    warmup_tolerance: Annotated[
        Share, Key("warm-up ends when the means of its halves differ by at most this fraction")
    ] = 0.02
    max_warmup_s: Annotated[Seconds, Key("maximum warm-up time")] = 10.0
    min_runs: Annotated[
        Count, Key("minimum timed runs, unless max_time_s ends them first (flag too_few)")
    ] = 100
    # The speed of a host changes from one millisecond to the next, and 100 runs of 8 us see one.
    min_observed_s: Annotated[
        SecondsOrNone,
        Key(
            "minimum time of all timed runs together, unless max_time_s or max_samples ends them "
            "first (flag too_few)"
        ),
    ] = 0.2
    half_width: Annotated[
        Share, Key("stop when the 95 % half-width of the median is below this fraction of it")
    ] = 0.01
    max_time_s: Annotated[Seconds, Key("maximum time of the timed runs")] = 20.0
    max_samples: Annotated[Count, Key("maximum number of timed runs")] = 100_000
    energy_s: Annotated[
        SecondsOrNone,
        Key("minimum time of runs for energy, if it can be read; 0 measures no energy"),
    ] = 2.0
    min_time_s: Annotated[
        SecondsOrNone,
        Key(
            "run back to back for so long, to measure sustained throughput; min_runs, "
            "min_observed_s, half_width, max_time_s and max_samples then do not count (0: they end "
            "the runs)"
        ),
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPolicy:
    """How the cells of a round take turns; the limits of one cell are those of `MeasurePolicy`.

    `benchmarks/round_blocks.py`: the first run of a block is up to 1.9 % slower, the second at most
    0.4 %; blocks of 0.2 to 0.4 s give the smallest error of a ratio. `docs/measuring.md` has both.
    """

    __pydantic_config__ = NO_OTHER_KEYS

    block_s: Annotated[Seconds, Key("time of one block; its last run may end later")] = 0.4
    left_out_runs: Annotated[
        int,
        Key(
            "first runs of a block that are not samples, because the caches hold another model's "
            "data",
            ge=0,
            le=1000,
        ),
    ] = 2
    min_blocks: Annotated[int, Key("minimum number of blocks per cell", ge=2, le=1000)] = 5
    max_blocks: Annotated[int, Key("maximum number of blocks per cell", ge=2, le=1000)] = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPolicy:
    """Several processes of one cell at the same time, each with the model loaded for itself.

    Attributes:
        count: processes, at least 1.
        run_s: each runs inferences back to back for so long; above 0.
        cpus: of each process, in order; `None` lets the system choose. They replace the affinity.
    """

    count: int
    run_s: float
    cpus: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatLimits:
    """Limits of one repeat, or of one inference; only the dispatcher reads `max_attempts`."""

    __pydantic_config__ = NO_OTHER_KEYS

    timeout_s: Annotated[
        Seconds, Key("after this time the process is killed and the repeat has failed")
    ] = 300.0
    memory_limit_bytes: Annotated[
        Bytes | None,
        Key(
            "memory of one worker: a number, or text such as '2GiB' (default: 80 % of the host's; "
            "no limit for an NVIDIA GPU)",
            ge=2**20,
            lt=2**63,
        ),
    ] = None
    max_attempts: Annotated[
        int, Key("maximum tries of one repeat when its failures are transient", ge=1, le=20)
    ] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How to execute an artifact: the device-independent part of a platform.

    Attributes:
        backend: execution provider or delegate: `cpu`, `cuda`, `tensorrt`, `plugin:NAME` for ONNX
            Runtime, `cpu` or `cuda` for PyTorch, `xnnpack` for LiteRT.
        affinity: CPU numbers the worker is pinned to; `None` lets the system choose.
        cpu_choice: what the sweep asked for; with `first_cores` the numbers are not part of the
            platform. `None` if no sweep asked.
        options: only values that differ from the default; `Capability` lists a runtime's names.
        axes: sizes of the named axes of the inputs; part of the platform's name.
        inputs: as the model's card states them; empty takes them from the file.
        workload: what one inference does; not part of the platform, nor is what follows.
        replicas: run several processes at the same time instead of one: the answer has `replicas`
            and no samples. The worker of one such process waits until all of them are warm.
        is_profiled: find out where the time goes instead of measuring a latency: the answer has a
            `profile` and no samples.
    """

    runtime: Runtime
    backend: str
    mode: Mode = Mode.EAGER
    precision: Precision = Precision.FP32
    batch: int = 1
    threads: int = 1
    affinity: tuple[int, ...] | None = None
    cpu_choice: CpuChoice | None = None
    options: Options = ()
    axes: Axes = ()
    inputs: tuple[ModelInput, ...] = ()
    workload: Workload = IMAGE
    replicas: ReplicaPolicy | None = None
    is_profiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryTask:
    """A small model of known latency. It shows whether the device is in its normal state.

    It is a TFLite file: the only format whose program every phone can run.

    Attributes:
        affinity: CPUs it is pinned to, as when the device was registered.
        reference_ns: its latency at registration.
        spread: largest minus smallest of its medians then, over their mean; `None` if unknown.
        runs_before: run it before the repeat.
        runs_after: run it after the repeat; true for the last repeat of a device's share.
    """

    artifact_path: str
    artifact_sha256: str
    affinity: tuple[int, ...] | None
    reference_ns: int
    spread: float | None
    runs_before: bool
    runs_after: bool

    def deviation(self, latency_ns: int, tolerance: float) -> float | None:
        """Its latency over that at registration, if noise does not explain it; else `None`."""
        ratio = latency_ns / self.reference_ns
        return ratio if deviates(ratio, self.spread, tolerance) else None


NOISE_FACTOR = 3.0
"""A deviation of three times the spread of the registration runs is not noise."""


def deviates(ratio: float, spread: float | None, tolerance: float) -> bool:
    """Whether a canary deviates more, slower or faster, than its device's noise explains.

    Args:
        ratio: its latency now over that at registration.
        spread: as in `CanaryTask`.
        tolerance: least accepted deviation.
    """
    return abs(ratio - 1) > max(tolerance, NOISE_FACTOR * (spread or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCost:
    """What one inference of a language model costs, for the whole batch.

    Attributes:
        macs: multiply-accumulates.
        moved_bytes: weights read once, and the cache read and written.
        weight_bytes: of the model, whatever an inference reads of it.
        state_bytes: of the cache.
    """

    macs: int
    moved_bytes: int
    weight_bytes: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a worker needs to open one file. It says nothing about networks or sweeps.

    Attributes:
        task_id: opaque to the agent; the measurement returns it.
        artifact_path: absolute path of the exported file on the device's host.
        artifact_sha256: checked by the code that opens the file; the simulated agent opens none.
        weights_path: `SHA256.data` in the same folder, which the file reads; `None` if all weights
            are inside the file.
        is_trusted: created by this workspace, so a `.pt2` is not scanned for pickles.
        limits: of the worker: after its time it is killed with its process group, its memory is
            RLIMIT_DATA; without one, the agent chooses.
        gpu_uuid: GPU or MIG instance of a GPU backend; `None` uses the only one that exists.
    """

    task_id: str
    artifact_path: str
    artifact_sha256: str
    execution: Execution
    is_trusted: bool = False
    weights_path: str | None = None
    limits: RepeatLimits = field(default_factory=RepeatLimits)
    gpu_uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTask(Task):
    """One repeat of one cell.

    Attributes:
        primer_path: a tiny artifact of the same runtime, loaded and run before the memory baseline
            is read; `None` counts the runtime's lazy imports and pools as memory of the model.
        check_path: `SHA256.npz` with inputs as in `InferTask`, and what the network gave for them
            in fp32: after the timed runs the file is compared with it. `None` compares nothing.
        seed: of the random inputs.
        macs_and_parameters: read only by the simulated agent: (MACs, parameters) of the network.
        token_costs: also read only by it, of a language model: of one inference; for `generate` of
            the prompt and of one step. Empty for all other models.
        canary: to run beside the repeat; only phones have one.
        allows_shared_gpu: if other processes use it, flag the repeat instead of rejecting it.
        blocks: the repeat is one cell of a round, measured in blocks when its caller says so;
            `None` measures it alone, without a pause.
        members: task ids of the round, this one included; empty without a round.
        quiet_s: on a busy host the device asks for time, for so many seconds at most; `None`
            measures at once. Of a round, that of the first task counts.
    """

    primer_path: str | None = None
    check_path: str | None = None
    seed: int = 0
    policy: MeasurePolicy = field(default_factory=MeasurePolicy)
    macs_and_parameters: tuple[int, int] | None = None
    token_costs: tuple[TokenCost, ...] = ()
    canary: CanaryTask | None = None
    allows_shared_gpu: bool = False
    blocks: BlockPolicy | None = None
    members: tuple[str, ...] = ()
    quiet_s: float | None = None


def canary_task(
    path: str,
    sha256: str,
    affinity: tuple[int, ...] | None,
    policy: MeasurePolicy,
    timeout_s: float,
) -> MeasureTask:
    """One run of the canary; its id is new each time: an old result says nothing of now."""
    return MeasureTask(
        task_id=f"canary/{datetime.now(timezone.utc).isoformat()}",
        artifact_path=path,
        artifact_sha256=sha256,
        execution=Execution(runtime=Runtime.TFLITE, backend="xnnpack", affinity=affinity),
        is_trusted=True,
        policy=policy,
        limits=RepeatLimits(timeout_s=timeout_s),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InferTask(Task):
    """Runs an artifact once per given input and keeps the outputs, for verification.

    With an array `targets` in the file of inputs, it keeps how probable the first output makes each
    target, for an evaluation: `worker.infer` has both forms.

    Attributes:
        inputs_path: `.npz` with one array per model input, `input_0`, `input_1`, ...; the first
            axis counts the cases. A case is a whole input if that is one axis more than the input
            has, else one sample.
        outputs_path: path of the `.npz` to write, with `output_0`, ... of shape (n_cases, ...).
    """

    inputs_path: str
    outputs_path: str


def infer_task(task: Task, inputs: Path, outputs: Path) -> InferTask:
    """The file of another task, run with given inputs."""
    same = {one.name: getattr(task, one.name) for one in fields(Task)}
    return InferTask(**same, inputs_path=str(inputs), outputs_path=str(outputs))


def sweep_of(task_id: str) -> str:
    """Returns the sweep of a task; hosts ask this for each task, so nothing else is parsed."""
    return task_id.partition("/")[0]
