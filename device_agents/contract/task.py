"""What an agent is asked; what it saw is a `Measurement`, a type of its own.

`None` means not known or not applicable.
"""

from dataclasses import dataclass, field

from fleetrank.device_agents.contract.vocabulary import Mode, Precision, Runtime

OptionValue = str | int | float | bool
Options = tuple[tuple[str, OptionValue], ...]
"""Runtime options that differ from the default, sorted by name; hashable, unlike a dict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePolicy:
    """When warming up and timing end; the defaults are the measuring protocol's.

    Attributes:
        min_warmup_runs: at least this many runs, and
        min_warmup_s: at least this long, then
        warmup_tolerance: until the means of both halves differ by no more than this share, or
        max_warmup_s: this long.
        min_runs: timed runs, unless `max_time_s` ends them first (flag `too_few`).
        half_width: stop when the 95 % half-width of the median, as a share of it, is below this.
        max_time_s: at most this long for the timed runs.
        max_samples: at most this many timed runs.
        energy_s: least length of the runs repeated for energy, where it can be read; 0 for none.
    """

    min_warmup_runs: int = 10
    min_warmup_s: float = 0.5
    warmup_tolerance: float = 0.02
    max_warmup_s: float = 10.0
    min_runs: int = 100
    half_width: float = 0.01
    max_time_s: float = 20.0
    max_samples: int = 10_000
    energy_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How an artifact is to be executed: the device-independent part of a platform.

    Attributes:
        backend: execution provider or delegate: `cpu`, `cuda` or `tensorrt` for ONNX Runtime,
            `cpu` or `cuda` for PyTorch, `xnnpack` for LiteRT.
        affinity: CPU numbers the worker is pinned to; `None` leaves the choice to the system.
        options: non-defaults only; which names a runtime knows is its `Capability`.
    """

    runtime: Runtime
    backend: str
    mode: Mode = Mode.EAGER
    precision: Precision = Precision.FP32
    batch: int = 1
    threads: int = 1
    affinity: tuple[int, ...] | None = None
    options: Options = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryTask:
    """A small model of known latency, run beside a repeat to see whether the device is itself.

    It is a TFLite file: the one format whose program every phone can have.

    Attributes:
        affinity: CPUs it is pinned to, as when the device was registered.
        reference_ns: what it took then.
        spread: largest less smallest of its medians then, over their mean; `None` if unknown.
        runs_before: run it before the repeat is measured.
        runs_after: and after it, as the last repeat of a device's share does.
    """

    artifact_path: str
    artifact_sha256: str
    affinity: tuple[int, ...] | None
    reference_ns: int
    spread: float | None
    runs_before: bool
    runs_after: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTask:
    """One repeat of one cell: what a worker needs, and nothing about networks or sweeps.

    Attributes:
        task_id: opaque to the agent; comes back in the measurement.
        artifact_path: absolute path of the exported file on the device's host.
        artifact_sha256: checked by whoever opens the file; the simulated agent opens none.
        is_trusted: made by this workspace, so that a `.pt2` need not be scanned for pickles.
        primer_path: a tiny artifact of the same runtime, loaded and run before the baseline of
            memory is taken; `None` charges the runtime's lazy imports and pools to the model.
        seed: of the random inputs.
        timeout_s: the worker and its process group are killed after this long.
        memory_limit_bytes: RLIMIT_DATA of the worker; `None` leaves it to the agent.
        macs_and_parameters: only the simulated agent reads it: (MACs, parameters) of the network.
        canary: to be run beside the repeat; only phones have one.
        gpu_uuid: GPU or MIG instance of a GPU backend; `None` takes the only one there is.
        allows_shared_gpu: other processes on it flag the repeat instead of refusing it.
    """

    task_id: str
    artifact_path: str
    artifact_sha256: str
    execution: Execution
    is_trusted: bool = False
    primer_path: str | None = None
    seed: int = 0
    policy: MeasurePolicy = field(default_factory=MeasurePolicy)
    timeout_s: float = 300.0
    memory_limit_bytes: int | None = None
    macs_and_parameters: tuple[int, int] | None = None
    canary: CanaryTask | None = None
    gpu_uuid: str | None = None
    allows_shared_gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InferTask:
    """Run an artifact once per given input and keep the outputs: what verification needs.

    Attributes:
        inputs_path: `.npz` with one array per model input, `input_0`, `input_1`, ...; the first
            axis counts the cases, each case is run as a batch of one.
        outputs_path: where the `.npz` with `output_0`, ... of shape (n_cases, ...) is written.
        gpu_uuid: as in `MeasureTask`.
    """

    task_id: str
    artifact_path: str
    artifact_sha256: str
    execution: Execution
    inputs_path: str
    outputs_path: str
    is_trusted: bool = False
    timeout_s: float = 300.0
    memory_limit_bytes: int | None = None
    gpu_uuid: str | None = None
