"""What a kind of device says about itself; `registry.py` lists the kinds.

Callers ask a kind for its traits and abilities and never compare its name. Loading a kind imports
no runtime and contacts no device: its functions import what they need when they are called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Protocol

from fleetrank.device_agents.contract.agent import Agent, Cluster, Say
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, OptionValue
from fleetrank.foundation.vocabulary import Origin, Runtime, Words

Fact = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryFile:
    """The exported canary model on this host."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationData:
    """The data found when a device was registered.

    Attributes:
        facts: for display, and for the comparison with the device later.
        clusters: CPUs of one kind, fastest cluster first; empty if the device reports no cores,
            if a core was offline, or if programs cannot be pinned to them.
        small: CPUs of the clusters of smaller kinds, which `auto` leaves.
        canary_latency_ns: median of each canary process, on the fastest cluster.
        options: options of its agent that the canary found; the device file has them beside the
            others.
    """

    registered_utc: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    clusters: tuple[tuple[int, ...], ...] = ()
    small: tuple[int, ...] = ()
    canary_latency_ns: tuple[int, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    @property
    def canary_affinity(self) -> tuple[int, ...] | None:
        """The fastest cluster; `None` if no clusters are known."""
        return self.clusters[0] if self.clusters else None

    @property
    def canary_spread(self) -> float | None:
        """Repeatability: (largest - smallest) / mean of the canary's medians."""
        runs = self.canary_latency_ns
        return (max(runs) - min(runs)) / fmean(runs) if len(runs) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredDevice:
    """The part of a device file that registration decides."""

    options: Mapping[str, OptionValue]
    registration: RegistrationData


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRequest:
    """The user's request.

    Attributes:
        address: as the discovery shows it.
        programs: the user's own programs, by name.
        options: options of the device's agent, which checks them.
        setup: runtimes to install on the device first; only boards can.
    """

    address: str
    programs: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    setup: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactChange:
    """One fact, as registered and as found now; `meaning` is its effect on measurements."""

    fact: str
    registered: object
    now: object
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPlan:
    """How a new device runs the canary.

    Attributes:
        policy: of one run, and
        timeout_s: its limit.
        delegates: backends that the device may lack, to try; `None` if its kind has no delegates.
        cap_option: the option that keeps the highest clock cap under load, in MHz.
        is_optional: without the libraries that export the canary, register without it.
    """

    agent: Agent
    policy: MeasurePolicy
    timeout_s: float
    delegates: tuple[str, ...] | None = None
    cap_option: str | None = None
    is_optional: bool = False


class Applicant(Protocol):
    """A device that answered and can be registered."""

    @property
    def identity(self) -> str | None:
        """Equal for two registrations of one unit; `None` if the device reports none."""
        ...

    @property
    def model(self) -> str:
        """The name of its model; the name of the device is made from it."""
        ...

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """Its cores by their kind, fastest first; empty as in `RegistrationData`."""
        ...

    def options(self, before: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        """The options for its agent; keeps `before`, values that the user has set earlier.

        Raises:
            FleetError: an option or a program that the device cannot have.
        """
        ...

    @property
    def facts(self) -> Mapping[str, Fact]:
        """As in `RegistrationData`."""
        ...

    def canary(self, options: Mapping[str, OptionValue]) -> CanaryPlan | None:
        """How it runs the canary; `None` if it cannot, which it says."""
        ...


class Registrar(Protocol):
    """Registers the devices of one kind, and cleans them when they are removed."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that a user may give."""
        ...

    @property
    def address_in(self) -> str:
        """The option of a device file that has its address."""
        ...

    @property
    def least_shares(self) -> Mapping[str, float]:
        """Options that vary; the share of the registered value from which on they are good."""
        ...

    def canary_tolerance(self, options: Mapping[str, OptionValue]) -> float:
        """The least accepted deviation of the canary of a device with these options."""
        ...

    def meet(self, request: RegistrationRequest, say: Say) -> Applicant:
        """Connects to a device and reads its properties; changes nothing on it.

        Raises:
            FleetError: it does not answer, or does not meet the programs' requirements.
        """
        ...

    def identity_of(self, options: Mapping[str, OptionValue]) -> str | None:
        """The `Applicant.identity` that a device file stores."""
        ...

    def is_same(self, identity: str, other: str) -> bool:
        """Whether two identities are of one unit; one of them can be less precise."""
        ...

    def clean(self, options: Mapping[str, OptionValue]) -> None:
        """Deletes what fleetrank left on a device.

        Raises:
            FleetError: the device does not answer or is in use; the remedy is the user's command.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDevice:
    """One device that this host can see.

    Attributes:
        state: in the words of the kind's own tools.
        transport: how it is connected.
        remedy: what to do before it can be registered; `None` if it is ready.
        options: of its device file, without which its address is not reached.
    """

    address: str
    state: str
    transport: str
    model: str | None
    remedy: str | None
    options: Mapping[str, OptionValue] = field(default_factory=dict)


class Discoverer(Protocol):
    """Finds devices of one kind that are not registered yet."""

    nothing_seen: str
    """What to do if no device is seen."""

    def discover(self, known: Sequence["DeviceOptions"]) -> Sequence[SeenDevice]:
        """Lists the devices; those that are only announced come last.

        Args:
            known: options of the registered devices, which may name more places to look at.

        Raises:
            FleetError: the tool that lists them is missing or does not answer.
        """
        ...

    def is_at(self, options: "DeviceOptions", seen: SeenDevice) -> bool:
        """Whether the device with these options has the address of the one that was seen."""
        ...


class VirtualMode(Words):
    """Where the latencies of a virtual device come from."""

    REAL = "real"
    """The model runs on the device's host."""
    CANNED = "canned"
    """Computed from the model's SHA-256 and the device's seed, in milliseconds."""
    EMULATED = "emulated"
    """The programs that a user gives run on the device's host, on an emulated processor."""


def origin_of(virtual: object) -> Origin:
    """The origin of rows of a device in this mode; `None` is a real device."""
    if virtual is None:
        return Origin.MEASURED
    return Origin.EMULATED if virtual == VirtualMode.EMULATED else Origin.VIRTUAL


DeviceOptions = Mapping[str, OptionValue]
"""The options of one device, as in its file."""


class HostShare(Words):
    """How measuring on a device uses its host's lease."""

    ALONE = "alone"
    """Exclusive: the device computes on the host's own cores."""
    BESIDE = "beside"
    """Shared with devices of the same kind, such as phones on one host."""
    NONE = "none"
    """No lease: the device disturbs no other measurement, or takes the lease itself."""


class Pinning(Words):
    """The cores of a repeat when neither the sweep nor the registration names them."""

    HOST_CORES = "host_cores"
    """One logical CPU of each core of the host."""
    COUNTED = "counted"
    """CPUs counted from 0."""
    FREE = "free"
    """Not pinned: counting from 0 would pin a phone to its slowest cores, and a GPU's compiler
    to one."""


class EnergyMeter(Words):
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
        needs_acceptance: its rows are its own claims: no figure has them until a person accepts
            the device.
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
    needs_acceptance: bool = False


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
class DeviceKind:
    """A kind of device: what a package gives to `fleetrank.kinds`, an object of this class.

    Attributes:
        create_agent: makes the agent of one device; raises `PermanentError` for an option that the
            kind does not have.
        traits_of: the traits of a device with these options. They are not checked yet.
        default_backend: backend of a runtime if the sweep names none; also for a runtime that the
            kind lacks, so that its agent can say why.
        check_library: checks that this host has the library of a runtime, if the worker of such a
            device loads it here; raises `MissingLibraryError`.
        check_host: what `fleetrank doctor` says about this host.
        is_probed_when_added: `devices add` probes the device at once.
        registrar: (options of a device, or none) to what registers devices by their address, for
            `devices add` with `kind=NAME` and `address=ADDRESS`; without it they are added by name.
        discoverer: finds devices for `devices list` with `found=true`.
    """

    create_agent: Callable[[DeviceOptions], Agent]
    traits_of: Callable[[DeviceOptions], Traits]
    default_backend: Callable[[Runtime], str]
    check_library: Callable[[Runtime], None] | None = None
    check_host: Callable[[], Sequence[HostCheck]] | None = None
    is_probed_when_added: bool = False
    registrar: Callable[[DeviceOptions], Registrar] | None = None
    discoverer: Callable[[], Discoverer] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(DeviceKind):
    """A kind with what fleetrank's own kinds say beside that.

    Attributes:
        is_host_cpu: the device is the processor of its host. Every host has one without a file,
            and what it supports depends on the host.
        address_option: the option of `devices add` that takes the address of a device to register;
            `address` for a kind of another package.
        name: of a kind of another package, which that option needs too.
        why_not_profiled: says why the kind cannot find out where the time of this goes, or `None`
            if it can; without it the kind profiles nothing.
        why_not_replicated: says why this cannot run in several processes at once on the kind, or
            `None` if it can; without it the kind runs one process at a time.
    """

    is_host_cpu: bool = False
    presence: Presence | None = None
    address_option: str | None = None
    name: str | None = None
    why_not_profiled: Callable[[Execution], str | None] | None = None
    why_not_replicated: Callable[[Execution], str | None] | None = None


def why_no_kind(member: object) -> str | None:
    """What an object lacks of `DeviceKind`, or `None`."""
    if not isinstance(member, DeviceKind):
        return f"it is {type(member).__name__}, not a `DeviceKind`"
    wrong = [
        one.name
        for one in fields(DeviceKind)
        if one.name != "is_probed_when_added"
        and not callable(value := getattr(member, one.name))
        and (value is not None or one.default is MISSING)
    ]
    return f"its {', '.join(wrong)} cannot be called" if wrong else None
