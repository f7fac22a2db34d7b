"""Registered devices: one YAML file each in `devices/`, and this host's CPU without a file."""

import logging
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from fleetrank.device_agents.contract.kind import Kind, RegistrationData, Traits
from fleetrank.device_agents.contract.proof import Proof
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.hold import CommandHold, Reservation, held
from fleetrank.device_agents.hosts.messages import DeviceSpec
from fleetrank.device_agents.power import Power
from fleetrank.device_agents.registry import HOST_CPU, KINDS, load_kind
from fleetrank.foundation.checksums import MARK, marked_checksum
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import did_you_mean
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.identity import HOST_NAME
from fleetrank.orchestrator.workspace.sweep_spec import OptionSpec
from fleetrank.orchestrator.workspace.workspace import LOCAL_CPU, Workspace, stored_name
from fleetrank.orchestrator.workspace.yaml_file import parse_file

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
    power: Power | None = Field(
        default=None, description="command of a lab that switches the device off and on"
    )
    registration: Registration | None = Field(
        default=None, description="data found when the phone was registered; do not edit"
    )

    peaks: tuple[PeakSpec, ...] = Field(
        default=(), description="measured peaks, by number of threads; do not edit"
    )
    proof: Proof | None = Field(
        default=None, description="that the figures are right on it; do not edit"
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
            power=self.power,
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
