"""The closed sets of words that describe a measurement, for all packages and for stored rows."""

from enum import StrEnum


class Runtime(StrEnum):
    """What executes an exported file."""

    ONNX = "onnx"
    TORCH = "torch"
    TFLITE = "tflite"
    EXECUTORCH = "executorch"


class Precision(StrEnum):
    """Arithmetic precision of the measured artifact."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


class Mode(StrEnum):
    """How the runtime executes the graph; `eager` if the runtime has only one way."""

    EAGER = "eager"
    COMPILE = "compile"
    GRAPHS = "graphs"


class Tier(StrEnum):
    """The class of device that tier-to-tier transfer compares."""

    GPU = "gpu"
    CPU = "cpu"
    EDGE = "edge"


class Origin(StrEnum):
    """Where a row comes from; only `measured` and `imported` rows enter the transfer tables."""

    MEASURED = "measured"
    VIRTUAL = "virtual"
    SIMULATED = "simulated"
    IMPORTED = "imported"


class SampleKind(StrEnum):
    """What one number of `samples_ns` means."""

    PER_INFERENCE = "per_inference"
    TOOL_SUMMARY = "tool_summary"
    THROUGHPUT_DERIVED = "throughput_derived"
    VENDOR = "vendor"


class MemoryMetric(StrEnum):
    """What a memory figure counts; comparing different metrics always prints a notice."""

    VMHWM_GROWTH = "vmhwm_growth"
    """Growth of the process's peak resident set (VmHWM) over its resident set before loading."""
    MAXRSS_GROWTH = "maxrss_growth"
    """Growth of getrusage's ru_maxrss, as benchmark_model reports it."""
    CUDA_ALLOCATED = "cuda_allocated"
    CUDA_RESERVED = "cuda_reserved"
    NVML_PROCESS = "nvml_process"
    SIMULATED = "simulated"
    VENDOR_ESTIMATE = "vendor_estimate"
    """Upper end of a range that a vendor's tool estimates; only in imported rows."""


class Status(StrEnum):
    """How one attempt ended."""

    OK = "ok"
    FAILED = "failed"


class Flag(StrEnum):
    """A quality flag of one measurement; `device_agents.timing.flags` has the thresholds."""

    SPREAD = "spread"
    OUTLIERS = "outliers"
    DRIFT = "drift"
    PREEMPTED = "preempted"
    THROTTLED = "throttled"
    HOT = "hot"
    TOO_FEW = "too_few"
    NICED = "niced"
    BUSY_HOST = "busy_host"
    UNSTABLE_WARMUP = "unstable_warmup"
    SHARED_DEVICE = "shared_device"
    HOST_OVERHEAD = "host_overhead"
    CLOCKS_DISAGREE = "clocks_disagree"
    TAKEN_OVER = "taken_over"
    """An equal device measured instead of the cell's own device; the dispatcher sets this flag."""


class EnergyMethod(StrEnum):
    """Where an energy figure comes from; all except counters are estimates."""

    NVML_COUNTER = "nvml_counter"
    NVML_POLLED = "nvml_polled"
    """Power readings, integrated: for GPUs without a counter."""
    RAPL_COUNTER = "rapl_counter"


class ErrorKind(StrEnum):
    """Why one attempt failed; `Failure.is_transient` says whether to retry."""

    BAD_ARTIFACT = "bad_artifact"
    """The runtime rejects the file: damaged, hostile or of another format."""
    UNSUPPORTED = "unsupported"
    """The device or runtime does not support the task."""
    MISSING_LIBRARY = "missing_library"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    """A signal or an exit code ended the worker, without a result."""
    BAD_OUTPUT = "bad_output"
    """The worker's output is not a measurement."""
    TIMED_OUT = "timed_out"
    DEVICE_LOST = "device_lost"
    HOST_LOST = "host_lost"
    """The host the device is attached to does not answer. The device or cell may be fine."""
    DISK_FULL = "disk_full"
    UNFIT_CONDITIONS = "unfit_conditions"
    """The device was too hot, slowed down or in an abnormal state; its measurement is not valid."""
    INTERRUPTED = "interrupted"
    EXPORT_FAILED = "export_failed"
    """The model could not be exported, so it could not be measured."""
    VERIFICATION_FAILED = "verification_failed"
    """The exported file computes something different from its source model."""
    INTERNAL = "internal"
    """A defect of fleetrank itself."""


class Family(StrEnum):
    """Architecture families of the built-in models."""

    STANDARD_CNN = "standard_cnn"
    MOBILE_CNN = "mobile_cnn"
    EFFICIENT_CNN = "efficient_cnn"
    TRANSFORMER = "transformer"
    HYBRID = "hybrid"


class Format(StrEnum):
    """Formats of exported files; each runs in the one runtime of `RUNTIME_OF_FORMAT`."""

    ONNX = "onnx"
    PT2 = "pt2"
    TFLITE = "tflite"
    PTE = "pte"


class WeightsKind(StrEnum):
    """The kind of weights of a network."""

    SEEDED = "seeded"
    """Random, calibrated so that no activations become denormal or overflow."""
    PRETRAINED = "pretrained"
    """Downloaded by the library's own loading code."""
    CHECKPOINT = "checkpoint"
    """A local state dict, read with `weights_only`."""
    EMBEDDED = "embedded"
    """The weights in the user's file."""


class FlopsMethod(StrEnum):
    """How FLOPs (2 x MACs) were determined; shows how reliable they are."""

    COUNTED = "counted"
    """Counted on the traced graph, fused attention switched off."""
    FORMULA = "formula"
    """A published figure, stated in the card."""
    PUBLISHED = "published"
    """From a published table of another source; in imported rows only."""


RUNTIME_OF_FORMAT = {
    Format.ONNX: Runtime.ONNX,
    Format.PT2: Runtime.TORCH,
    Format.TFLITE: Runtime.TFLITE,
    Format.PTE: Runtime.EXECUTORCH,
}
"""The one runtime that each format runs in."""


def words_of(closed_set: type[StrEnum]) -> tuple[str, ...]:
    """The words as plain strings, in the order of the definition."""
    return tuple(member.value for member in closed_set)
