"""Registers devices that answer at an address, compares them with their registration, proves them.

The kind of a device says what is found on it; this module decides the name and keeps the file.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

from fleetrank.device_agents.contract.agent import ProvingAgent, Say
from fleetrank.device_agents.contract.kind import (
    Applicant,
    CanaryFile,
    FactChange,
    Pinning,
    RegisteredDevice,
    Registrar,
    RegistrationRequest,
)
from fleetrank.device_agents.contract.proof import Proof
from fleetrank.device_agents.contract.task import OptionValue, canary_task
from fleetrank.device_agents.linux.cores import cpus_one_per_core
from fleetrank.device_agents.registry import KINDS, create_agent, load_kind
from fleetrank.foundation.errors import FleetError, reworded
from fleetrank.orchestrator.errors import NothingToDoError, OrchestratorError, UsageError
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
    Registration,
    load_devices,
    remove_device,
    save_device,
    update_device,
)
from fleetrank.orchestrator.workspace.workspace import LOCAL_CPU, Workspace
from fleetrank.orchestrator.workspace.yaml_file import parse_content


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

    def check(self, device: DeviceFile) -> tuple[FactChange, ...]:
        """Repeats a device's registration without writing a file; returns what has changed.

        Raises:
            NothingToDoError: the device is unreachable or unusable, or it is a different device.
        """
        from fleetrank.device_agents.registration_changes import changes_between

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

    def prove(self, workspace: Workspace, device: DeviceFile) -> Proof:
        """Measures the canary by the plain way and by fleetrank's; stores the proof.

        Raises:
            UsageError: devices of this kind have no bare way.
            NothingToDoError: the device is unreachable, or a run failed.
        """
        from fleetrank.device_agents.proving import N_PAIRS, PROOF_POLICY, prove

        agent = create_agent(device.kind, device.options)
        if not isinstance(agent, ProvingAgent):
            raise UsageError(
                f"no bare way to measure on a {device.kind} device, so {device.name} is not proven",
                f"prove a processor, a board or a phone, such as {LOCAL_CPU}",
            )
        file, purpose = self.canary(), f"the proof of device {device.name}"
        task = canary_task(file.path, file.sha256, _cores_of(device), PROOF_POLICY, _PROOF_LIMIT_S)
        with reworded(NothingToDoError, FleetError), device.reserved():
            proof = prove(agent, device.traits, task, N_PAIRS, purpose, self.say)
        update_device(workspace, device.model_copy(update={"proof": proof}))
        return proof

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
            "power": before.power if before else None,
        }
        where = f"device {new.request.address!r}"
        device = parse_content(where, DeviceFile, content)
        # It loads what measures, which a list of devices does not need.
        from fleetrank.device_agents.registration import try_out

        data = try_out(found, options, self.canary, self.say)
        learnt = {**device.options, **data.options}
        return device.model_copy(update={"registration": Registration.of(data), "options": learnt})


_PROOF_LIMIT_S = 120.0
"""Of one run of the canary, as at a registration."""


def _cores_of(device: DeviceFile) -> tuple[int, ...] | None:
    """Those of the canary; without a registration the first core that a sweep would use."""
    first = {Pinning.HOST_CORES: cpus_one_per_core()[:1], Pinning.COUNTED: (0,)}
    return device.found.canary_affinity or first.get(device.traits.pinning)


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
