"""The contract of the code that drives one device, the facts it reports, and its options.

`kind` is the contract of a whole kind of device.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar, get_args, runtime_checkable

from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import (
    Execution,
    InferTask,
    MeasureTask,
    Options,
    OptionValue,
)
from fleetrank.device_agents.errors import PermanentError, UnsupportedError
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.vocabulary import Mode, Origin, Precision, Runtime, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Cores of one kind.

    Attributes:
        cores: CPU numbers, ascending.
        max_mhz: their highest clock; `None` if all are offline or report none.
        is_small: of a smaller kind than the first cluster of the machine.
    """

    cores: tuple[int, ...]
    max_mhz: float | None
    is_small: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Facts about a device; every row measured on it stores them.

    Attributes:
        device_model: two phones of one model are two devices with the same device model.
        physical_cores: `None` if the system does not report it.
        extra: further facts, sorted by name; rows store them in `device_facts`.
    """

    device_model: str
    tier: Tier
    origin: Origin
    os: str
    arch: str
    cpu_model: str | None = None
    logical_cores: int | None = None
    physical_cores: int | None = None
    memory_bytes: int | None = None
    clock_max_mhz: float | None = None
    governor: str | None = None
    is_virtual_machine: bool | None = None
    extra: Options = ()


Say = Callable[[str], None]
"""Receives lines about the progress."""
StopRequested = Callable[[], bool]
"""Checked between steps; `True` means stop now, and the attempt becomes `interrupted`."""


def never_stop() -> bool:
    """A `StopRequested` that never stops a task."""
    return False


class Agent(Protocol):
    """Drives one device. It keeps no state between calls and can be created again at any time."""

    def probe(self) -> DeviceFacts:
        """Describes the device.

        Raises:
            TransientError: the device does not answer; try again later.
            PermanentError: the device cannot be used; the remedy says what is missing.
        """
        ...

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why this device cannot execute this, or `None` if it can; no I/O on the device."""
        ...

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time that `measure` may take, in seconds.

        If no answer arrives within this time, the caller treats the device as lost.
        """
        ...

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat; code that executes the model runs in a fresh process.

        Every expected failure (crash, timeout, invalid output, rejection) is returned as a
        measurement with status `failed`; no exception is raised for it.

        A device that is not fit (hot, restarting, not there) is not waited for in here: the agent
        raises `NotFitError` or `AwayError` inside and returns its failure, whose `wait` says when
        to ask again. Until then other devices of the host are measured. Callers without a
        scheduler use `host.worker_client.measure_when_fit`.
        """
        ...

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the artifact over stored inputs and writes its outputs; `None` means success."""
        ...


@runtime_checkable
class RoundAgent(Protocol):
    """An agent of a device that can hold several loaded models, which take turns."""

    def measure_round(
        self,
        tasks: Sequence[MeasureTask],
        stop_requested: StopRequested = never_stop,
        finish_requested: StopRequested = never_stop,
    ) -> Sequence[Measurement]:
        """Measures one repeat of each task in turns; one measurement per task, in their order.

        A failure ends its own task only. Every task has `blocks`. `finish_requested` ends the round
        when each task has the same number of blocks, one at least; all of them count.
        """
        ...


T = TypeVar("T")

OPTION_NAMES = "option_names"
"""Metadata of a field that is a mapping: the names of the options that it collects."""


def read_fields(
    cls: type[T],
    kind: str,
    options: Mapping[str, OptionValue],
) -> T:
    """Builds a dataclass from the options of one device; an integer is accepted for a float.

    Args:
        cls: the dataclass; each field is an option, or collects those of its `OPTION_NAMES`.
        kind: kind of the device, for messages.
        options: by name.

    Raises:
        PermanentError: an unknown or missing name, or a value of another type.
    """
    known = {
        name: field
        for field in fields(cls)  # type: ignore[arg-type]
        for name in field.metadata.get(OPTION_NAMES, (field.name,))
    }
    values: dict[str, OptionValue] = {}
    collected: dict[str, dict[str, OptionValue]] = {}
    for name, value in options.items():
        if name not in known:
            raise PermanentError(
                f"a device of kind {kind} has no option {name!r}",
                f"its options are: {', '.join(known)}",
            )
        field = known[name]
        place = values if field.name == name else collected.setdefault(field.name, {})
        place[name] = _typed(name, value, field.type)
    with failing_as(
        PermanentError, f"a device of kind {kind} lacks an option", "add the option", TypeError
    ):
        return cls(**values, **collected)


def _typed(name: str, value: OptionValue, wanted: object) -> OptionValue:
    kinds = tuple(dict.fromkeys(get_args(wanted))) or (wanted,)
    if type(value) in kinds:
        return value
    if float in kinds and type(value) is int:
        return float(value)
    names = " or ".join(kind.__name__ for kind in kinds if isinstance(kind, type))
    raise PermanentError(f"option {name} is {value!r}", f"the value must be of type {names}")


# What a runtime supports in one place: on a processor, on a GPU, or in a program for phones.


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """The supported names; any other name is rejected before anything is loaded or sent.

    Attributes:
        backends: execution providers or delegates; the first is the default.
        modes: ways to execute a graph.
        precisions: precisions of artifacts; by default every precision of a file is accepted.
        option_names: runtime options; the code that reads an option checks its value.
    """

    backends: tuple[str, ...]
    modes: frozenset[Mode] = frozenset({Mode.EAGER})
    precisions: frozenset[Precision] = frozenset(Precision)
    option_names: frozenset[str] = frozenset()

    @property
    def default_backend(self) -> str:
        """The backend of a sweep that names none."""
        return self.backends[0]

    def why_unsupported(self, execution: Execution, who: str, where: str = "") -> str | None:
        """Says what is not supported, or `None`.

        Args:
            execution: the requested execution.
            who: name of the runtime or program, for the sentence.
            where: such as "on a GPU", for the sentence.
        """
        asked = (
            (
                "backend",
                PLUGIN if plugin_of(execution.backend) else execution.backend,
                self.backends,
            ),
            ("mode", execution.mode.value, self.modes),
            ("precision", execution.precision.value, self.precisions),
            *(("option", name, self.option_names) for name, _value in execution.options),
        )
        for what, name, known in asked:
            if name not in known:
                place = f" {where}" if where else ""
                return f"{who} has no {what} {name!r}{place}; it has {listed(known)}"
        if execution.threads < 1 or execution.batch < 1:
            return "threads and batch must be at least 1"
        return execution.workload.why_no_step


def listed(names: Iterable[str]) -> str:
    """Joins names for a sentence."""
    return ", ".join(sorted(names)) or "none"


def boolean_option(execution: Execution, name: str, *, default: bool) -> bool:
    """The option's value, or `default` if it is not given.

    Raises:
        UnsupportedError: the value is not a boolean.
    """
    value = dict(execution.options).get(name, default)
    if not isinstance(value, bool):
        raise UnsupportedError(f"option {name} is {value!r}", f"set {name} to true or false")
    return value


# Backends and options for NVIDIA GPUs, by runtime; runners, agent and worker use this list.

PLUGIN = "plugin:NAME"
"""How messages write the backend of a plugin for ONNX Runtime."""
_PLUGIN = re.compile(r"plugin:([a-z0-9][a-z0-9_-]{0,40})(?::(cpu|gpu|npu))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A provider of ONNX Runtime that is a separate Python package.

    A plugin is code. A sweep can name only what is installed under a name that begins with
    `onnxruntime`, never a path.

    Attributes:
        packages: the modules that can hold it, the makers' usual name first.
        unit: the kind of hardware; `None` if the plugin offers one device.
    """

    packages: tuple[str, ...]
    unit: str | None


def plugin_of(backend: str) -> Plugin | None:
    """The plugin of a backend `plugin:NAME` or `plugin:NAME:npu`; `None` for every other one."""
    named = _PLUGIN.fullmatch(backend)
    if named is None:
        return None
    name = named[1].replace("-", "_")
    return Plugin(packages=(f"onnxruntime_ep_{name}", f"onnxruntime_{name}"), unit=named[2])


CUDA = "cuda"
TENSORRT = "tensorrt"
GPU_BACKENDS = frozenset({CUDA, TENSORRT})
FLUSH_L2 = "flush_l2"
"""Overwrite the L2 cache before each run, untimed; needs PyTorch, for every runtime."""
TF32 = "tf32"
"""Allow products of fp32 numbers to round their factors to 10 bits (TF32). PyTorch and ONNX Runtime
do this by default in convolutions; it is off here, so that fp32 is really fp32."""
CUDNN_BENCHMARK = "cudnn_benchmark"
"""PyTorch tests cuDNN's algorithms in the first run; off, which is PyTorch's default."""
TORCH_STREAM = "torch_stream"
"""ONNX Runtime uses a stream of PyTorch, whose events then time the run on the device."""
GPU_RUNTIMES: Mapping[Runtime, Capability] = {
    Runtime.TORCH: Capability(
        backends=(CUDA,),
        modes=frozenset({Mode.EAGER, Mode.COMPILE, Mode.GRAPHS}),
        precisions=frozenset({Precision.FP32, Precision.FP16, Precision.BF16}),
        option_names=frozenset({FLUSH_L2, TF32, CUDNN_BENCHMARK}),
    ),
    Runtime.ONNX: Capability(
        backends=(CUDA, TENSORRT),
        modes=frozenset({Mode.EAGER, Mode.GRAPHS}),
        # Its CUDA provider lacks most operators in bfloat16, such as convolutions.
        precisions=frozenset({Precision.FP32, Precision.FP16}),
        option_names=frozenset({FLUSH_L2, TF32, TORCH_STREAM}),
    ),
}


def why_unsupported_on_gpu(execution: Execution) -> str | None:
    """Says what is not supported on NVIDIA GPUs, or `None`; loads no library."""
    name = execution.runtime.value
    capability = GPU_RUNTIMES.get(execution.runtime)
    if capability is None:
        return f"{name} does not run on NVIDIA GPUs here; {listed(GPU_RUNTIMES)} do"
    return capability.why_unsupported(execution, name, "on a GPU")
