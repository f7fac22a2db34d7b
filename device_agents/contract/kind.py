"""What a kind of device says about itself; `registry.py` lists the kinds.

Callers ask a kind for its traits and abilities and never compare its name. Loading a kind imports
no runtime and contacts no device: its functions import what they need when they are called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.registered import Discoverer, Registrar, VirtualDevices
from fleetrank.device_agents.contract.task import Execution, OptionValue
from fleetrank.foundation.vocabulary import Origin, Runtime

DeviceOptions = Mapping[str, OptionValue]
"""The options of one device, as in its file."""


class HostShare(StrEnum):
    """How measuring on a device uses its host's lease."""

    ALONE = "alone"
    """Exclusive: the device computes on the host's own cores."""
    BESIDE = "beside"
    """Shared with devices of the same kind, such as phones on one host."""
    NONE = "none"
    """No lease: the device disturbs no other measurement, or takes the lease itself."""


class Pinning(StrEnum):
    """The cores of a repeat when neither the sweep nor the registration names them."""

    HOST_CORES = "host_cores"
    """One logical CPU of each core of the host."""
    COUNTED = "counted"
    """CPUs counted from 0."""
    FREE = "free"
    """Not pinned: counting from 0 would pin a phone to its slowest cores, and a GPU's compiler
    to one."""


class EnergyMeter(StrEnum):
    """What counts the energy of a repeat."""

    DEVICE = "device"
    HOST = "host"
    """The counter of the host's processors, if it can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What planning and dispatch need to know about one device before it is contacted.

    Attributes:
        origin: of its rows, as long as the device has not been queried.
        share: the lease of its host that a measurement needs.
        needs_quiet: measuring on it uses the host's cores, so nothing else may.
        energy: `None` if its energy is not counted.
        is_primed: its worker loads a primer first, because the worker's lazy imports would
            otherwise count as memory of the model.
        takes_turns: its agent is a `RoundAgent`.
        infers: its agent's `infer` runs on the device itself and not in its place on the host, so
            an evaluation is one of the device.
        opens_files: its agent opens the exported file; otherwise the cost of the model is enough.
        repeat_s: seconds of one repeat whatever it measures; `None` depends on the cell.
    """

    origin: Origin = Origin.MEASURED
    share: HostShare = HostShare.NONE
    needs_quiet: bool = False
    pinning: Pinning = Pinning.FREE
    energy: EnergyMeter | None = None
    is_primed: bool = False
    takes_turns: bool = False
    infers: bool = False
    opens_files: bool = True
    repeat_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """One line of `fleetrank doctor` about this host; `remedy` is `None` if all is well."""

    name: str
    message: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """How to see from a host which devices of a kind are attached to it.

    Attributes:
        noun: heading of their count, such as `gpus`.
        seen_here: addresses of the devices attached to this host; `None` if it cannot be known.
        why_absent: (options of a device, what its host sees) to what the host lacks and the
            remedy, or `None` if the device may be there.
    """

    noun: str
    seen_here: Callable[[], tuple[str, ...] | None]
    why_absent: Callable[[DeviceOptions, tuple[str, ...] | None], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """Reads the raw logs that a kind's agent stored.

    Attributes:
        is_own: whether this kind wrote a log.
        read: (log, runtime, origin) to the measurement that today's parser makes of it, without
            conditions, flags and times; raises `FleetError` if the parser rejects the log.
        fields: the fields of that measurement that a log decides.
    """

    is_own: Callable[[str], bool]
    read: Callable[[str, Runtime, Origin], Measurement]
    fields: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of device.

    Attributes:
        create_agent: makes the agent of one device; raises `PermanentError` for an option that the
            kind does not have.
        traits_of: the traits of a device with these options. They are not checked yet.
        default_backend: backend of a runtime if the sweep names none; also for a runtime that the
            kind lacks, so that its agent can say why.
        is_host_cpu: the device is the processor of its host. Every host has one without a file,
            and what it supports depends on the host.
        is_probed_when_added: `devices add` detects a missing driver at once.
        address_option: the option of `devices add` that takes the address of a device to register.
        registrar: (options of a device, or none) to the kind's registrar.
        check_library: checks that this host has the library of a runtime, if the worker of such a
            device loads it here; raises `MissingLibraryError`.
        why_not_profiled: says why the kind cannot find out where the time of this goes, or `None`
            if it can; without it the kind profiles nothing.
        why_not_replicated: says why this cannot run in several processes at once on the kind, or
            `None` if it can; without it the kind runs one process at a time.
    """

    create_agent: Callable[[DeviceOptions], Agent]
    traits_of: Callable[[DeviceOptions], Traits]
    default_backend: Callable[[Runtime], str]
    is_host_cpu: bool = False
    check_library: Callable[[Runtime], None] | None = None
    is_probed_when_added: bool = False
    presence: Presence | None = None
    check_host: Callable[[], Sequence[HostCheck]] | None = None
    address_option: str | None = None
    registrar: Callable[[DeviceOptions], Registrar] | None = None
    discoverer: Callable[[], Discoverer] | None = None
    virtual_devices: Callable[[], VirtualDevices] | None = None
    log_reader: Callable[[], LogReader] | None = None
    why_not_profiled: Callable[[Execution], str | None] | None = None
    why_not_replicated: Callable[[Execution], str | None] | None = None
