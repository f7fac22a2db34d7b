"""The request to an agent; the answer is a `Measurement`, a separate type.

`None` means not known or not applicable.
"""

from dataclasses import dataclass, field

from fleetrank.foundation.vocabulary import Mode, Precision, Runtime

OptionValue = str | int | float | bool
Options = tuple[tuple[str, OptionValue], ...]
"""Runtime options that differ from the default, sorted by name; hashable, which a dict is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePolicy:
    """When warm-up and timing end; the defaults are those of the measuring protocol.

    Attributes:
        min_warmup_runs: at least this many warm-up runs, and
        min_warmup_s: at least this long, then
        warmup_tolerance: until the means of both halves differ by no more than this share, or
        max_warmup_s: this long.
        min_runs: timed runs, unless `max_time_s` ends them first (flag `too_few`).
        half_width: stop if the 95 % half-width of the median, as a share of it, is below this.
        max_time_s: at most this long for the timed runs.
        max_samples: at most this many timed runs.
        energy_s: least duration of the runs repeated for energy, if it can be read; 0 disables it.
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
    """How to execute an artifact: the device-independent part of a platform.

    Attributes:
        backend: execution provider or delegate: `cpu`, `cuda` or `tensorrt` for ONNX Runtime,
            `cpu` or `cuda` for PyTorch, `xnnpack` for LiteRT.
        affinity: CPU numbers the worker is pinned to; `None` lets the system choose.
        options: only values that differ from the default; `Capability` lists a runtime's names.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTask:
    """One repeat of one cell: what a worker needs. It says nothing about networks or sweeps.

    Attributes:
        task_id: opaque to the agent; the measurement returns it.
        artifact_path: absolute path of the exported file on the device's host.
        artifact_sha256: checked by the code that opens the file; the simulated agent opens none.
        is_trusted: created by this workspace, so a `.pt2` is not scanned for pickles.
        primer_path: a tiny artifact of the same runtime, loaded and run before the memory baseline
            is read; `None` counts the runtime's lazy imports and pools as memory of the model.
        seed: of the random inputs.
        timeout_s: after this time the worker and its process group are killed.
        memory_limit_bytes: RLIMIT_DATA of the worker; `None` lets the agent choose.
        macs_and_parameters: read only by the simulated agent: (MACs, parameters) of the network.
        canary: to run beside the repeat; only phones have one.
        gpu_uuid: GPU or MIG instance of a GPU backend; `None` uses the only one that exists.
        allows_shared_gpu: if other processes use it, flag the repeat instead of rejecting it.
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
    """Runs an artifact once per given input and keeps the outputs, for verification.

    Attributes:
        inputs_path: `.npz` with one array per model input, `input_0`, `input_1`, ...; the first
            axis counts the cases, and each case runs as a batch of one.
        outputs_path: path of the `.npz` to write, with `output_0`, ... of shape (n_cases, ...).
        gpu_uuid: the same as in `MeasureTask`.
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
