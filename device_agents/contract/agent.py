"""The contract of the code that drives one device, and the facts that it reports.

`kind` is the contract of a whole kind of device.
"""

from collections.abc import Callable, Mapping, Sequence
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
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.vocabulary import Origin, Tier


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
        scheduler use `linux.patience.measure_when_fit`.
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


@runtime_checkable
class ProvingAgent(Agent, Protocol):
    """An agent of a device that can also measure without fleetrank, which proves its figures."""

    def measure_bare(self, task: MeasureTask) -> tuple[int, ...]:
        """Measures a task as a person without fleetrank does; times in ns, all above 0.

        The same program runs the same file with the same threads on the same cores. One figure if
        the program gives no samples.

        Raises:
            FleetError: it failed; nothing is tried again.
        """
        ...


T = TypeVar("T")
OPTION_NAMES = "option_names"
"""Metadata of a field that is a mapping: the names of the options that it collects."""


def read_fields(cls: type[T], kind: str, options: Mapping[str, OptionValue]) -> T:
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
