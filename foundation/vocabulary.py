"""The closed sets of words that describe a measurement, for all packages and for stored rows."""

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Literal


class Words(str, Enum):
    """A closed set of words; a member is its word in every text.

    `enum.StrEnum` is newer than Python 3.10, which runs this code on a board.
    """

    def __str__(self) -> str:
        return str(self.value)


OPEN_WORD = re.compile("[a-z][a-z0-9_-]{0,29}", re.ASCII)
"""The form of a name that another package adds: a part of platform keys and of names of files."""


class OpenWords(Words):
    """Words of fleetrank's own, to which other packages add more.

    Iteration gives fleetrank's own. Every other well-formed name is a word too, whether or not its
    package is installed here, so that each process reads what another one wrote.
    """

    @classmethod
    def _missing_(cls, value: object) -> "OpenWords | None":
        if not (isinstance(value, str) and OPEN_WORD.fullmatch(value)):
            return None
        word = str.__new__(cls, value)
        word._name_, word._value_ = value, value
        # Equal words are one object, as those of a closed set are.
        return cls._value2member_map_.setdefault(value, word)  # type: ignore[return-value]

    def __reduce_ex__(self, _protocol: object) -> "tuple[type[OpenWords], tuple[str]]":
        return type(self), (self.value,)


class Runtime(OpenWords):
    """What executes an exported file; `formats.known_runtime` says which exist here."""

    ONNX = "onnx"
    TORCH = "torch"
    TFLITE = "tflite"
    EXECUTORCH = "executorch"


class Precision(Words):
    """Arithmetic precision of the measured artifact."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    FP64 = "fp64"
    """Only in files of the user; no exporter writes it."""
    INT4 = "int4"
    """Of the weights of products; the activations are 8-bit integers or floats."""
    INT8_DYNAMIC = "int8-dynamic"
    """By another recipe than `int8`: activations are quantised while the network runs."""
    INT8_S8S8 = "int8-s8s8"
    """Signed activations."""
    W8A16 = "w8a16"
    """Activations of 16 bits."""


CALIBRATED = frozenset({Precision.INT8, Precision.INT8_S8S8, Precision.W8A16})
"""Recipes that need the ranges of activations."""
INTEGERS = CALIBRATED | {Precision.INT4, Precision.INT8_DYNAMIC}
WEIGHT_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "fp64": 8.0,
        "fp32": 4.0,
        "fp16": 2.0,
        "bf16": 2.0,
        **dict.fromkeys(INTEGERS, 1.0),
        "int4": 0.5,
    }
)
"""Of one weight in each precision; scales of quantised weights come on top, see `SCALE_BYTES`."""


class Mode(Words):
    """How the runtime executes the graph; `eager` if the runtime has only one way."""

    EAGER = "eager"
    COMPILE = "compile"
    GRAPHS = "graphs"


class CpuChoice(Words):
    """The CPUs that a sweep asked for; which ones it got is a fact of the row."""

    FIRST_CORES = "first_cores"
    """One CPU of each core of those that the host allows, in its order."""
    LISTED = "listed"
    """CPUs by their numbers."""
    CLUSTER = "cluster"
    """A cluster of a phone, whose numbers are fixed by its chip."""
    FREE = "free"
    """The system chooses."""


class Tier(Words):
    """The class of device that tier-to-tier transfer compares."""

    GPU = "gpu"
    CPU = "cpu"
    EDGE = "edge"


class Axis(Words):
    """In what two conditions differ under which the order of models is compared."""

    DEVICE = "device"
    """Shown from tier to tier."""
    RUNTIME = "runtime"
    BACKEND = "backend"
    MODE = "mode"
    PRECISION = "precision"
    THREADS = "threads"
    BATCH = "batch"
    WORKLOAD = "workload"
    VERSION = "version"
    """Of the runtime, on one platform."""
    SWEEP = "sweep"
    REPEAT = "repeat"


class Origin(Words):
    """Where a row comes from; only `measured` and `imported` rows enter the transfer tables."""

    MEASURED = "measured"
    VIRTUAL = "virtual"
    EMULATED = "emulated"
    """The real program, on an emulated processor: its outputs and counts are real, no time is."""
    SIMULATED = "simulated"
    IMPORTED = "imported"


class SampleKind(Words):
    """What one number of `samples_ns` means."""

    PER_INFERENCE = "per_inference"
    PER_TOKEN = "per_token"  # noqa: S105 - not a password
    """A step of `generate`; the time of its prompt is stored apart."""
    TOOL_SUMMARY = "tool_summary"
    THROUGHPUT_DERIVED = "throughput_derived"
    VENDOR = "vendor"


class Design(Words):
    """How the repeats of a platform were arranged in time."""

    ISOLATED = "isolated"
    """One cell after the other."""
    ROUNDS = "rounds"
    """Cells of a round take turns, in blocks."""


class Statistic(Words):
    """What the one latency figure of a repeat is, of the times of its inferences."""

    MEDIAN = "median"
    MEAN = "mean"
    MINIMUM = "minimum"


class MemoryMetric(Words):
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


class Status(Words):
    """How one attempt ended."""

    OK = "ok"
    FAILED = "failed"


class Flag(Words):
    """A quality flag of one measurement; `device_agents.timing` has the thresholds."""

    SPREAD = "spread"
    OUTLIERS = "outliers"
    DRIFT = "drift"
    PREEMPTED = "preempted"
    THROTTLED = "throttled"
    HOT = "hot"
    TOO_FEW = "too_few"
    NICED = "niced"
    CPU_QUOTA = "cpu_quota"
    """The quota of a control group stopped the worker while it was timed."""
    BUSY_HOST = "busy_host"
    BESIDE_READING = "beside_reading"
    """A fleetrank command that reads results worked on the same host, in any workspace."""
    UNSTABLE_WARMUP = "unstable_warmup"
    SHARED_DEVICE = "shared_device"
    HOST_OVERHEAD = "host_overhead"
    CLOCKS_DISAGREE = "clocks_disagree"
    SCREEN_OFF = "screen_off"
    """A phone's screen was off before or after: the system may slow down programs of the shell."""
    SETTINGS_NOT_APPLIED = "settings_not_applied"
    """The phone denies stay-awake or no heads-up notifications; its screen may have gone off."""
    CACHE_COPIED = "cache_copied"
    """The runtime cannot write a state in place: each inference copies it, or a step hands it on
    by a copy."""
    LOOP_OVERHEAD = "loop_overhead"
    """The sequences of `generate` took longer than their prompts and steps together."""
    NAN_OUTPUTS = "nan_outputs"
    """An output holds a NaN, or no finite number: the file computes nothing that is of use here."""
    SELF_REPORTED = "self_reported"
    """A page measured itself: its word is the only evidence of the figures."""
    TAKEN_OVER = "taken_over"
    """An equal device measured instead of the cell's own device; the dispatcher sets this flag."""


class EnergyMethod(Words):
    """Where an energy figure comes from; all except counters are estimates."""

    NVML_COUNTER = "nvml_counter"
    NVML_POLLED = "nvml_polled"
    """Power readings, integrated: for GPUs without a counter."""
    RAPL_COUNTER = "rapl_counter"
    HWMON_POLLED = "hwmon_polled"
    """Power readings of a board's own sensor at its input, integrated."""
    ODPM_COUNTER = "odpm_counter"
    """A phone's own meter of the rails of processors and memory, without display and radio."""
    BATTERY_COUNTER = "battery_counter"
    """Charge that left a phone's battery, times its voltage: the whole phone."""
    BATTERY_POLLED = "battery_polled"
    """Current out of a phone's battery times its voltage, integrated: the whole phone."""


class ErrorKind(Words):
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
    WRONG_OUTPUT = "wrong_output"
    """On this device the file computes something else than its network."""
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


class CellVerdict(Words):
    """Whether the figure of a cell can be used; `analysis.statistics.verdicts` decides."""

    STEADY = "steady"
    NOISY = "noisy"
    DOUBTFUL = "doubtful"


class Problem(Words):
    """What a finding of the audit is about; the first can change conclusions the most."""

    SLIPPED_PLATFORM = "platform in another unit"
    """All latencies of a platform are near 10^3 or 10^6 times those of its tier."""
    SLIPPED_MODEL = "model in another unit"
    """The same for a model on all platforms, or its FLOPs are wrong by that factor."""
    UNIT_SLIP = "unit slip"
    """An outlier against the fit near 10^3 or 10^6."""
    SENTINEL = "sentinel"
    """A figure is a code for 'missing'."""
    SLIPPED_MEMORY = "memory in another unit"
    """MB as MiB, or a factor of 1000 or 1024."""
    AGAINST_ITSELF = "outlier against itself"
    """The newest sweep contradicts the older ones."""
    AGAINST_THE_FIT = "outlier against the fit"
    """A figure is far from what the platform's other models predict."""
    PLACEMENT = "changed placement"
    """The newest release ran a model on another unit of the device."""
    DUPLICATE = "duplicate platform"
    PROPORTIONAL = "proportional platform"
    """All ratios to another platform are equal, but not 1."""
    REPEATED_ROWS = "repeated rows"
    """The same figures are stored twice and count as two measurements."""
    DIFFERENT_FACTS = "different facts"
    """A platform mixes facts that must be equal inside it."""
    DIFFERENT_METRICS = "different memory metrics"
    TIED_LATENCY = "tied latency"
    TIED_MEMORY = "tied memory"
    TOO_FEW_MODELS = "too few models"


class Family(Words):
    """Architecture families: those of the built-in models, and one for all other networks."""

    STANDARD_CNN = "standard_cnn"
    MOBILE_CNN = "mobile_cnn"
    EFFICIENT_CNN = "efficient_cnn"
    TRANSFORMER = "transformer"
    HYBRID = "hybrid"
    GPT = "gpt"
    """Decoders with learned positions, layer norm and GELU, as GPT-2."""
    OPT = "opt"
    """Decoders with learned positions, layer norm and ReLU."""
    NEOX = "neox"
    """Decoders with partly rotary positions, and attention beside the feed-forward layer."""
    LLAMA = "llama"
    """Decoders with rotary positions, RMS norm and gated feed-forward layers."""
    ENCODER = "encoder"
    """Encoders of text, as BERT."""
    OTHER = "other"
    """Not one of these architectures, or not stated: the default of a card."""


class Format(OpenWords):
    """Formats of exported files; each of these runs in the one runtime of `RUNTIME_OF_FORMAT`."""

    ONNX = "onnx"
    PT2 = "pt2"
    TFLITE = "tflite"
    PTE = "pte"


class WeightsKind(Words):
    """The kind of weights of a network."""

    SEEDED = "seeded"
    """Random, calibrated so that no activations become denormal or overflow."""
    PRETRAINED = "pretrained"
    """Downloaded by the library's own loading code."""
    CHECKPOINT = "checkpoint"
    """A local state dict, read with `weights_only`."""
    EMBEDDED = "embedded"
    """The weights in the user's file."""


class FlopsMethod(Words):
    """How FLOPs (2 x MACs) were determined; shows how reliable they are."""

    COUNTED = "counted"
    """Counted on the traced graph, fused attention switched off."""
    FORMULA = "formula"
    """A published figure, stated in the card; or from the numbers of a decoder or encoder."""
    PARAMETERS = "parameters"
    """MACs = parameters x tokens, of a user's decoder: the products of attention are left out."""
    PUBLISHED = "published"
    """From a published table of another source; in imported rows only."""


RUNTIME_OF_FORMAT = {
    Format.ONNX: Runtime.ONNX,
    Format.PT2: Runtime.TORCH,
    Format.TFLITE: Runtime.TFLITE,
    Format.PTE: Runtime.EXECUTORCH,
}
"""The one runtime of fleetrank's that each format runs in; `formats` knows those of others."""
FORMAT_OF_RUNTIME = {runtime: format_ for format_, runtime in RUNTIME_OF_FORMAT.items()}


def words_of(closed_set: type[Words]) -> tuple[str, ...]:
    """The words as plain strings, in the order of the definition."""
    return tuple(member.value for member in closed_set)


class Form(Words):
    """How rows are written; a command or a function takes some of these."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"
    PARQUET = "parquet"


TableForm = Literal[Form.TABLE, Form.JSON, Form.CSV, Form.MARKDOWN, Form.LATEX]
"""The forms of a table; `analysis.tables.formats` writes them."""
