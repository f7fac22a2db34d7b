"""Builds a sweep's setup from its specification: the plan, the devices and their hosts."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from statistics import fmean

from fleetrank.device_agents.contract.kind import EnergyMeter, Pinning
from fleetrank.device_agents.contract.task import CanaryTask, Execution
from fleetrank.device_agents.registry import create_agent
from fleetrank.foundation.cpus import Kinds
from fleetrank.foundation.errors import raise_together
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import Artifact, Cost, ExportRequest, ResolvedCard
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import Cards, load_cards
from fleetrank.models.errors import CardError
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.identity import Cell, DevicePlace, Plan, SkippedCell
from fleetrank.orchestrator.keys import platform_key
from fleetrank.orchestrator.plan.pinning import DeviceCores
from fleetrank.orchestrator.plan.plan import ALL, make_plan, narrow, select_models
from fleetrank.orchestrator.sweep.fleet import Fleet, Refusals, this_host
from fleetrank.orchestrator.token_costs import cost_without_file
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
    host_cpu,
    load_devices,
    read_device_files,
    with_alias,
)
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A planned sweep.

    Attributes:
        fleet: the hosts it was planned for.
        devices: the devices of the plan, by name.
        places: the place of each device: the host it is attached to.
        only: the pattern that restricted the plan; part of the record.
        refused: platforms that CPUs of other hosts do not support, with the reason.
    """

    spec: SweepSpec
    plan: Plan
    fleet: Fleet
    devices: Mapping[str, DeviceFile]
    places: Mapping[str, DevicePlace]
    only: str | None
    refused: Mapping[str, str]

    def costs_without_file(self, cells: Iterable[Cell]) -> dict[ExportRequest, Cost]:
        """The costs of the requests whose file no device opens and no export has to count."""
        opened = set[ExportRequest]()
        unopened = dict[ExportRequest, None]()
        for cell in cells:
            if self.places[cell.device].opens_files:
                opened.add(cell.export)
            else:
                unopened[cell.export] = None
        costs = {one: cost_without_file(one) for one in unopened if one not in opened}
        return {one: cost for one, cost in costs.items() if cost is not None}

    @property
    def has_canaries(self) -> bool:
        """Whether any device was registered with a canary."""
        return any(device.found.canary_latency_ns for device in self.devices.values())

    def canaries(self, artifact: Artifact | None) -> dict[str, CanaryTask]:
        """The canary of each phone registered with one, by device; empty without a file."""
        if artifact is None:
            return {}
        registrations = {name: device.found for name, device in self.devices.items()}
        return {
            name: CanaryTask(
                artifact_path=artifact.path,
                artifact_sha256=artifact.sha256,
                affinity=registration.canary_affinity,
                reference_ns=round(fmean(registration.canary_latency_ns)),
                spread=registration.canary_spread,
                runs_before=False,
                runs_after=False,
            )
            for name, registration in registrations.items()
            if registration.canary_latency_ns
        }


def plan_sweep(
    workspace: Workspace,
    spec: SweepSpec,
    only: str | None,
    fleet: Fleet | None = None,
    ask_host: Refusals | None = None,
) -> Setup:
    """Plans a sweep in a workspace; writes nothing.

    Args:
        workspace: with model cards and device files.
        spec: what to measure.
        only: a pattern that restricts the plan.
        fleet: the hosts to plan for; by default only this host.
        ask_host: asks another host what its CPU does not support; by default it supports all.

    Raises:
        UsageError: the specification, a model card or a device file is wrong.
        NothingToDoError: no device can measure any of its cells.
    """
    fleet = fleet or this_host()
    devices = devices_of(workspace, fleet)
    agents = {device.name: device for device in devices.values()}
    refused: dict[str, str] = {}

    @cache
    def why_unsupported(name: str, execution: Execution) -> str | None:
        device = agents[name]
        host = host_of(device, fleet)
        if not fleet.is_cluster and host != fleet.here:
            return f"it is attached to host {host}: measure there, or with `cluster=ADDRESS`"
        if device.kind_of.is_host_cpu and host != fleet.here:
            reason = None if ask_host is None else ask_host(host, device.spec, execution)
            if reason is not None:
                refused[platform_key(name, execution)] = reason
            return reason
        return create_agent(device.kind, device.options).why_unsupported(execution)

    models, unusable = _usable_models(spec, load_cards(workspace.cards))
    plan = make_plan(
        spec,
        models,
        devices,
        cores={device.name: cores_of(device, fleet) for device in devices.values()},
        memory={device.name: memory_of(device, fleet) for device in devices.values()},
        why_unsupported=why_unsupported,
    )
    plan = replace(plan, skipped=(*plan.skipped, *unusable))
    if not plan.cells:
        reasons = "; ".join(dict.fromkeys(skipped.reason for skipped in plan.skipped))
        raise NothingToDoError(
            f"sweep '{spec.name}' has no cell that can be measured: {reasons}",
            "change its models, workloads, devices, runtimes or threads; `fleetrank sweep plan` "
            "shows the effect",
        )
    if only is not None:
        plan = narrow(plan, only)
    used = {name: agents[name] for name in dict.fromkeys(cell.device for cell in plan.cells)}
    return Setup(
        spec=spec,
        plan=plan,
        fleet=fleet,
        devices=used,
        places={name: _place_of(device, fleet) for name, device in used.items()},
        only=only,
        refused=refused,
    )


def _usable_models(
    spec: SweepSpec, cards: Cards
) -> tuple[list[ResolvedCard], tuple[SkippedCell, ...]]:
    """The models of a sweep, and those that it means by `all` or a family and cannot use.

    Raises:
        CardError: the sweep names models whose cards or files cannot be used; names each.
    """
    # A card that cannot be read has no family, so only `all` can mean it.
    unusable = dict(cards.bad) if ALL in spec.models else {}
    named = {word: cards.bad[word] for word in spec.models if word in cards.bad}
    words = tuple(word for word in spec.models if word not in named)
    models = []
    for card in select_models(spec.model_copy(update={"models": words}), cards.good):
        try:
            models.append(resolve(card))
        except CardError as error:
            (named if card.name in spec.models else unusable)[card.name] = error
    raise_together(named.values())
    return models, tuple(
        SkippedCell(label=f"{name} on every device", reason=f"{error.message}: {error.remedy}")
        for name, error in unusable.items()
    )


def host_of(device: DeviceFile, fleet: Fleet) -> str:
    """The name of the host that a device is attached to.

    Raises:
        UsageError: its file has no `host`, and this host is not a device host.
    """
    host = device.host or fleet.here
    if host is None:
        raise UsageError(
            f"device {device.name} has no host, and this host does not belong to the cluster",
            f"add `host: NAME` to devices/{device.name}.yaml; hosts: {', '.join(fleet.hosts)}",
        )
    return host


def _place_of(device: DeviceFile, fleet: Fleet) -> DevicePlace:
    host, traits = host_of(device, fleet), device.traits
    # By the device, or by a counter of its host that can be read.
    facts, counts_energy = fleet.hosts.get(host), traits.energy is EnergyMeter.DEVICE
    if traits.energy is EnergyMeter.HOST:
        counts_energy = facts is not None and facts.counts_energy
    return DevicePlace(
        **asdict(traits),
        device=device.name,
        host=host,
        host_hash=None if facts is None else facts.host_hash,
        counts_energy=counts_energy,
        is_here=host == fleet.here,
        peaks={peak.threads: (peak.gflops, peak.gbps) for peak in device.peaks},
        has_power=device.power is not None,
        ties=device.spec.ties,
    )


def devices_of(workspace: Workspace, fleet: Fleet) -> dict[str, DeviceFile]:
    """The registered devices, and the CPU of each cluster host that has no device file."""
    if not fleet.is_cluster:
        return load_devices(workspace)
    files = read_device_files(workspace)
    cpus = {host_of(d, fleet): d for d in files.values() if d.kind_of.is_host_cpu}
    for host, facts in fleet.hosts.items():
        cpus.setdefault(host, host_cpu(host, facts.host_hash))
    devices = {device.name: device for device in cpus.values()} | files
    own = cpus.get(fleet.here or "")
    # No host of a name that does not answer has a CPU to measure, this one included.
    return devices if own is None else with_alias(devices, own.name)


def idle_cores() -> int:
    """The cores that this process may use and other processes leave idle now, at least 1."""
    busy, _, _ = os.getloadavg()
    return max(1, round(len(os.sched_getaffinity(0)) - busy))


def primed_formats(setup: Setup, cells: Iterable[Cell]) -> set[Format]:
    """The formats for which some cells need a primer."""
    primed = {name for name, device in setup.devices.items() if device.traits.is_primed}
    formats = {cell.export.format for cell in cells if cell.device in primed}
    return formats & set(Format)  # no network is exported to a format of another package


def cores_of(device: DeviceFile, fleet: Fleet) -> DeviceCores:
    """The cores that cells of a device are pinned to."""
    pinning = device.traits.pinning
    if pinning is Pinning.HOST_CORES:
        facts = fleet.hosts.get(host_of(device, fleet))
        return DeviceCores(one_per_core=None if facts is None else facts.one_per_core)
    free = () if pinning is Pinning.FREE else None
    found = device.found
    return DeviceCores(clusters=found.clusters, small=found.small, one_per_core=free)


def kinds_of(device: DeviceFile, fleet: Fleet) -> Kinds:
    """The CPUs of a device by kind, as its host or its registration states them."""
    if device.traits.pinning is not Pinning.HOST_CORES:
        return device.found.clusters
    facts = fleet.hosts.get(host_of(device, fleet))
    return () if facts is None else facts.kinds


def memory_of(device: DeviceFile, fleet: Fleet) -> int | None:
    """Memory of a device, as its host or its registration states it; `None` if neither does."""
    if device.kind_of.is_host_cpu:
        facts = fleet.hosts.get(host_of(device, fleet))
        return None if facts is None else facts.memory_bytes
    stated = device.found.facts.get("memory_bytes")
    return stated if type(stated) is int else None
