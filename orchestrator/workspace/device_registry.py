"""Registered devices: one YAML file each in `devices/`, and this host's CPU without a file."""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from fleetrank.device_agents.contract.agent import Say
from fleetrank.device_agents.contract.kind import (
    Applicant,
    CanaryFile,
    Change,
    Kind,
    RegisteredDevice,
    Registrar,
    RegistrationData,
    RegistrationRequest,
    Traits,
)
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.hold import CommandHold, Reservation, held
from fleetrank.device_agents.registry import HOST_CPU, KINDS, create_agent, load_kind
from fleetrank.foundation.errors import (
    BadFileError,
    FleetError,
    did_you_mean,
    reworded,
    shortened,
    visible_line,
)
from fleetrank.foundation.files import read_small_text
from fleetrank.foundation.plain_data import MARK, marked_checksum
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import NothingToDoError, OrchestratorError, UsageError
from fleetrank.orchestrator.identity import HOST_NAME, DeviceSpec
from fleetrank.orchestrator.workspace.selectors import MAX_NAMES, MAX_TEXT
from fleetrank.orchestrator.workspace.sweep_spec import OptionSpec, parse_content, parse_file
from fleetrank.orchestrator.workspace.workspace import LOCAL_CPU, Workspace, stored_name

_log = logging.getLogger(__name__)

_MARK = "# checksum "
_HINT = "; delete this line after an edit\n"
"""Text around the checksum. It is in the first line, so that a truncated file still has it."""
_HOST_CPU_NAME = re.compile("cpu-[0-9a-f]{6}")
"""Names reserved for CPUs, so that another kind of device cannot look like a measured CPU."""


def _known_kind(kind: str) -> str:
    try:
        load_kind(kind)
    except PermanentError as error:
        raise ValueError(f"{error.message}; {error.remedy}") from error
    return kind


def _not_local_cpu(name: str) -> str:
    if name == LOCAL_CPU:
        raise ValueError(
            f"'{LOCAL_CPU}' means the CPU of the host a sweep is started on; choose another name"
        )
    return name


Cpu = Annotated[int, Field(ge=0, lt=2**16)]
LatencyNs = Annotated[int, Field(ge=1, lt=2**63)]
"""A latency above zero: it is used in ratios, and zero means that nothing was measured."""


class Registration(BaseModel):
    """A checked `RegistrationData` in a device file; `devices check` compares it with the device.

    Attributes:
        facts: from the probe, for display and for `devices check`.
        clusters: CPUs with equal maximum clock, fastest cluster first.
        small: CPUs of the clusters of smaller kinds.
        canary_latency_ns: median of each canary process, on the fastest cluster.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    registered_utc: str | None = None
    facts: dict[str, bool | int | float | str | None] = {}
    clusters: tuple[tuple[Cpu, ...], ...] = ()
    small: tuple[Cpu, ...] = ()
    canary_latency_ns: tuple[LatencyNs, ...] = ()

    @classmethod
    def of(cls, data: RegistrationData) -> Self:
        """The part of the data that belongs in this section; `options` are among the options."""
        fields = asdict(data)
        del fields["options"]
        return cls(**fields)

    @property
    def data(self) -> RegistrationData:
        """The data as its kind understands them."""
        return RegistrationData(**dict(self))


class PeakSpec(BaseModel):
    """A measured `Peak` of a processor."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    threads: Annotated[int, Field(ge=1, lt=2**16)]
    gflops: Annotated[float, Field(gt=0)]
    gbps: Annotated[float, Field(gt=0)]


class DeviceFile(BaseModel):
    """One registered device; `options` go to its agent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[
        str,
        Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,59}$"),
        AfterValidator(_not_local_cpu),
    ] = Field(description="name used in sweeps; equal to the file name without .yaml")
    kind: Annotated[str, AfterValidator(_known_kind)] = Field(
        description=f"device kind: {', '.join(KINDS)}, or one of another package"
    )
    host: Annotated[str, Field(pattern=f"^{HOST_NAME}$")] | None = Field(
        default=None,
        description="host it is attached to, as in the node label fleetrank-host "
        "(default: the host that sweeps are started on)",
    )
    options: dict[str, OptionSpec] = Field(default={}, description="options of its device kind")
    labels: dict[str, str] = Field(default={}, description="shown but not used")
    reserve: Reservation | None = Field(
        default=None, description="commands of a lab that reserve the device while it is used"
    )
    registration: Registration | None = Field(
        default=None, description="data found when the phone was registered; do not edit"
    )

    peaks: tuple[PeakSpec, ...] = Field(
        default=(), description="measured peaks, by number of threads; do not edit"
    )

    @field_validator("kind")
    @classmethod
    def _owns_its_name(cls, kind: str, info: ValidationInfo) -> str:
        name = info.data.get("name")
        is_reserved = isinstance(name, str) and _HOST_CPU_NAME.fullmatch(name)
        if is_reserved and not load_kind(kind).is_host_cpu:
            raise ValueError(
                f"'{name}' is reserved for the CPU of a host; choose another name for a device "
                f"of kind {kind}"
            )
        return kind

    @property
    def found(self) -> RegistrationData:
        """The data found at its registration; empty for a device that was never probed."""
        return RegistrationData() if self.registration is None else self.registration.data

    @property
    def traits(self) -> Traits:
        """What its kind says about it."""
        return self.kind_of.traits_of(self.options)

    @property
    def kind_of(self) -> Kind:
        """Its kind, which answers what callers must know about the device."""
        return load_kind(self.kind)

    @property
    def spec(self) -> DeviceSpec:
        """The values needed to create its agent."""
        traits = self.traits
        return DeviceSpec(
            name=self.name,
            kind=self.kind,
            options=tuple(sorted(self.options.items())),
            share=traits.share,
            origin=traits.origin,
            reserve=self.reserve,
        )

    def reserved(self) -> AbstractContextManager[object]:
        """Reserves the device for a block of one command, if its file says how.

        Raises:
            NotFitError: another user has it.
        """
        if self.reserve is None:
            return nullcontext()
        return held(CommandHold(self.reserve))


def local_cpu() -> DeviceFile:
    """This host's CPU, under a name that differs from host to host."""
    return DeviceFile(name=stored_name(LOCAL_CPU), kind=HOST_CPU)


def host_cpu(host: str, host_hash: str) -> DeviceFile:
    """The CPU of a cluster host, under the name that the host gives it."""
    return DeviceFile(name=f"cpu-{host_hash[:6]}", kind=HOST_CPU, host=host)


def load_devices(workspace: Workspace) -> dict[str, DeviceFile]:
    """All devices by name; `local-cpu` is a second name of this host's CPU.

    Raises:
        UsageError: a device file is wrong; names file, key and remedy.
    """
    own = local_cpu()
    return with_alias({own.name: own} | read_device_files(workspace), own.name)


def read_device_files(workspace: Workspace) -> dict[str, DeviceFile]:
    """The registered devices by name; raises as `load_devices`."""
    devices = {}
    for path in sorted(workspace.devices.glob("*.yaml")):
        device = parse_file(path, DeviceFile)
        if device.name != path.stem:
            raise UsageError(
                f"{path}: key 'name': '{device.name}' is not the name of the file",
                f"rename the file to {device.name}.yaml or the device to {path.stem}",
            )
        if not _is_as_written(path.read_bytes()):
            _log.warning(
                "%s differs from what fleetrank wrote: it was edited or damaged. After an edit, "
                "delete its first line",
                path,
            )
        devices[device.name] = device
    return devices


def with_alias(devices: Mapping[str, DeviceFile], own: str) -> dict[str, DeviceFile]:
    """The devices with `local-cpu` as a second name of one."""
    return {**devices, LOCAL_CPU: devices[own]}


def find_device(devices: Mapping[str, DeviceFile], name: str) -> DeviceFile:
    """Looks a device up.

    Raises:
        UsageError: the device does not exist; the remedy names the nearest one.
    """
    if name in devices:
        return devices[name]
    hint = did_you_mean(name, devices, "`fleetrank devices list` shows all;")
    raise UsageError(
        f"unknown device '{shortened(name)}'",
        f"{hint} `fleetrank devices add` registers a new one",
    )


def save_device(workspace: Workspace, device: DeviceFile) -> Path:
    """Writes the file of a new device and returns its path.

    Raises:
        UsageError: a device of that name already exists.
        StoreError: the file cannot be written; no file is left behind.
    """
    path = workspace.devices / f"{device.name}.yaml"
    if path.exists():
        raise UsageError(
            f"{path} exists", f"edit it, or `fleetrank devices remove {device.name}` first"
        )
    return update_device(workspace, device)


def update_device(workspace: Workspace, device: DeviceFile) -> Path:
    """Replaces a device's file; readers see the complete old or new file.

    Raises:
        StoreError: it cannot be written.
    """
    path = workspace.devices / f"{device.name}.yaml"
    replace_file(path, device_text(device).encode())
    return path


def device_text(device: DeviceFile) -> str:
    """The content of a device's file, with its checksum in the first line."""
    content = device.model_dump(mode="json", exclude_defaults=True)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return f"{_MARK}{marked_checksum(text.encode())}{_HINT}{text}"


def _is_as_written(content: bytes) -> bool:
    """Whether a file matches its first-line checksum; true for a file without a checksum."""
    first, end, text = content.partition(b"\n")
    if _MARK.encode() in content or MARK.encode() in content:
        return first + end == f"{_MARK}{marked_checksum(text)}{_HINT}".encode()
    return True


def remove_device(workspace: Workspace, name: str) -> DeviceFile | None:
    """Deletes a device's file; its measurements stay.

    Returns:
        The content of the file; `None` if it could not be read.

    Raises:
        UsageError: the device has no file.
    """
    # Searched in the list of files: a name typed by a user must not be used as a path.
    path = {found.stem: found for found in workspace.devices.glob("*.yaml")}.get(name)
    if path is None:
        own = find_device(load_devices(workspace), name)
        raise UsageError(
            f"'{own.name}' is built in and has no file", "remove it from the sweep instead"
        )
    try:
        device = parse_file(path, DeviceFile)
    except UsageError:
        device = None
    path.unlink()
    return device


# A user's file of names or patterns, such as the models of a selection.

_COMMENT = re.compile(r"(?:^|\s)#")


def read_names(path: Path) -> tuple[str, ...]:
    """The names, one a line. Empty lines are left out; `#` after a space or first is a comment.

    Raises:
        MissingFileError: the file does not exist.
        BadFileError: it is not a regular text file of at most 1 MB, holds no name or more than
            `MAX_NAMES`, or a line is not a name; the message gives the line's number.
    """
    lines = read_small_text(path).replace("\r\n", "\n").split("\n")
    names = [name for number, line in enumerate(lines, 1) if (name := _name(path, number, line))]
    if not names:
        raise BadFileError(f"{path} holds no name", "write one name or pattern a line")
    if len(names) > MAX_NAMES:
        raise BadFileError(
            f"{path} holds {len(names):,} names", f"name at most {MAX_NAMES:,}, or use patterns"
        )
    return tuple(names)


def _name(path: Path, number: int, line: str) -> str:
    name = _COMMENT.split(line, maxsplit=1)[0].strip()
    if visible_line(name) != name:
        raise BadFileError(
            f"{path}, line {number}: '{shortened(visible_line(name))}' has a character that cannot "
            "be shown",
            "write one name or pattern a line, as plain text",
        )
    if len(name) > MAX_TEXT:
        raise BadFileError(
            f"{path}, line {number} has {len(name):,} characters",
            f"names and patterns have at most {MAX_TEXT} characters",
        )
    return name


# Registers devices that answer at an address, and compares them with their registration later.
#
# The kind of a device says what is found on it; this module decides the name and keeps the file.


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDevice:
    """The user's request for a device of a kind that is registered by its address.

    Attributes:
        name: `None` keeps the registered name, or derives one from the model.
        host: cluster host it is attached to; `None` keeps the registered one.
    """

    kind: str
    request: RegistrationRequest
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationDesk:
    """What registration needs from its caller.

    Attributes:
        canary: returns the exported canary model; called only if a program can run it.
        say: receives lines about the progress.
    """

    canary: Callable[[], CanaryFile]
    say: Say

    def add(self, workspace: Workspace, new: NewDevice) -> DeviceFile:
        """Registers or re-registers a device and writes its file.

        Raises:
            UsageError: a program that no runtime uses, or a name that another device has.
            NothingToDoError: the device cannot be reached or used.
        """
        registrar = registrar_of(new.kind, {})
        for name in new.request.programs:
            if name not in registrar.programs:
                known = ", ".join(registrar.programs)
                raise UsageError(f"`tool={name}=PATH`: not used by any runtime", f"use {known}")
        devices = {device.name: device for device in load_devices(workspace).values()}
        device = self.register(registrar, new, devices.values())
        identity = registrar.identity_of(device.options)
        before = _find(registrar, identity, device.kind, devices.values())
        if before is not None and before.name == device.name:
            update_device(workspace, device)
            return device
        save_device(workspace, device)
        if before is not None:
            remove_device(workspace, before.name)
        return device

    def check(self, device: DeviceFile) -> tuple[Change, ...]:
        """Repeats a device's registration without writing a file; returns what has changed.

        Raises:
            NothingToDoError: the device is unreachable or unusable, or it is a different device.
        """
        from fleetrank.device_agents.registration import changes_between

        registrar = registrar_of(device.kind, device.options)
        with reworded(NothingToDoError, FleetError), device.reserved():
            create_agent(device.kind, device.options).probe()
        request = RegistrationRequest(address=address_of(registrar, device) or "")
        new = NewDevice(kind=device.kind, request=request, name=device.name)
        after = self.register(registrar, new, [device])
        then, now = (
            RegisteredDevice(options=one.options, registration=one.found) for one in (device, after)
        )
        return changes_between(registrar, then, now)

    def register(
        self, registrar: Registrar, new: NewDevice, known: Collection[DeviceFile]
    ) -> DeviceFile:
        """Probes a device, tries it out and returns its description; writes no file.

        Args:
            registrar: of its kind.
            new: the user's request.
            known: registered devices; the same device keeps its name, labels and options.

        Raises:
            UsageError: the name belongs to another device or is invalid.
            NothingToDoError: the device is unreachable or unusable; the remedy names the problem.
        """
        # By its address: what a device says of itself is known only when it is ours.
        address = new.request.address
        there = [one for one in known if address_of(registrar, one) == address]
        try:
            with there[0].reserved() if there else nullcontext():
                return self._register(registrar, new, known)
        except OrchestratorError:
            raise
        except FleetError as error:
            raise NothingToDoError(error.message, error.remedy) from error

    def _register(
        self, registrar: Registrar, new: NewDevice, known: Collection[DeviceFile]
    ) -> DeviceFile:
        found = registrar.meet(new.request, self.say)
        before = _find(registrar, found.identity, new.kind, known)
        options = found.options(before.options if before else {})
        if before is not None and new.name not in (None, before.name):
            _require_same_address(registrar, before, new)
        # Checks the user's input first, because the canary takes a minute.
        content = {
            "name": _given_name(new, found, before, {device.name for device in known}),
            "kind": new.kind,
            "host": new.host or (before.host if before else None),
            "options": options,
            "labels": {**(before.labels if before else {}), **new.labels},
            "reserve": before.reserve if before else None,
        }
        where = f"device {new.request.address!r}"
        device = parse_content(where, DeviceFile, content)
        # It loads what measures, which a list of devices does not need.
        from fleetrank.device_agents.registration import try_out

        data = try_out(found, options, self.canary, self.say)
        learnt = {**device.options, **data.options}
        return device.model_copy(update={"registration": Registration.of(data), "options": learnt})


def registrar_of(kind: str, options: Mapping[str, OptionValue]) -> Registrar:
    """The registrar of a kind, for a device with these options.

    Raises:
        UsageError: devices of this kind are added by name.
    """
    create = load_kind(kind).registrar
    if create is None:
        raise UsageError(
            f"a device of kind {kind} has no registration", f"add it by a name, with `kind={kind}`"
        )
    return create(options)


def kind_with_address(option: str) -> str:
    """The kind whose devices `devices add` registers with this option."""
    return next(name for name, one in KINDS.items() if one.address_option == option)


def clean_device(device: DeviceFile) -> None:
    """Deletes what fleetrank left on a device whose kind leaves something there.

    Raises:
        FleetError: the device does not answer or is in use; the remedy is the user's command.
    """
    create = device.kind_of.registrar
    if create is not None:
        with device.reserved():
            create(device.options).clean(device.options)


def _find(
    registrar: Registrar, identity: str | None, kind: str, known: Iterable[DeviceFile]
) -> DeviceFile | None:
    """The registered device with this identity, for any address; `None` for a new device."""
    if identity is None:
        return None
    of_kind = (device for device in known if device.kind_of is load_kind(kind))
    stored = ((device, registrar.identity_of(device.options)) for device in of_kind)
    same = [(d, one) for d, one in stored if one is not None and registrar.is_same(identity, one)]
    # An equal identity first: one that says less can also be that of a twin.
    same.sort(key=lambda found: found[1] != identity)
    return same[0][0] if same else None


def address_of(registrar: Registrar, device: DeviceFile) -> str | None:
    """The address in a device file."""
    found = device.options.get(registrar.address_in)
    return None if found is None else str(found)


def _require_same_address(registrar: Registrar, before: DeviceFile, new: NewDevice) -> None:
    """Renames a device only at its own address: at another it can be its twin.

    Raises:
        UsageError: the file of the other device would be removed.
    """
    known = address_of(registrar, before)
    if known not in (None, new.request.address):
        raise UsageError(
            f"device '{before.name}' at {known} has the same identity",
            f"if it is the same device, `fleetrank devices remove {before.name}` first; two "
            "devices with one identity cannot both be registered",
        )


def _given_name(
    new: NewDevice, found: Applicant, before: DeviceFile | None, taken: Collection[str]
) -> str:
    """The requested name, the registered name, or one from its model, numbered if it is in use."""
    had = None if before is None else before.name
    name = new.name or had
    if name is not None:
        if name in taken and name != had:
            raise UsageError(
                f"a device '{name}' already exists: {name}.yaml",
                f"choose another `name=`, or `fleetrank devices remove {name}` first",
            )
        return name
    words = re.sub(r"[^a-z0-9]+", "-", found.model.lower()).strip("-")
    stem = words[:50] or new.kind
    numbered = (f"{stem}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (stem, *numbered) if name not in taken)
