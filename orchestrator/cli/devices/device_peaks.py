"""`fleetrank devices peaks`: measures what a processor can do at most."""

from dataclasses import asdict
from typing import Annotated

import typer

from fleetrank.device_agents.host.peaks import probe_peak
from fleetrank.device_agents.host.topology import cpus_one_per_core
from fleetrank.orchestrator.cli.context import current, host_turn
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.device_registry import (
    LOCAL_CPU,
    DeviceFile,
    PeakSpec,
    find_device,
    load_devices,
    update_device,
)


def peaks(
    name: Annotated[str, typer.Argument(help="Name of the device.")] = LOCAL_CPU,
    *,
    threads: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Number of threads, one on each core; repeatable (default 1)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the peak FLOP/s and bytes/s of this host's CPU.

    They are stored in the device's file. Rows measured later with as many threads refer to them:
    MFU and MBU are shares of these peaks.
    """
    workspace = current().workspace
    device = find_device(load_devices(workspace), name)
    wanted = sorted(set(threads or [1]))
    cpus = _cpus_of(device, wanted[-1])
    with host_turn(f"devices peaks {device.name}"):
        found = [probe_peak(cpus[:count]) for count in wanted]
    known = {peak.threads: peak for peak in device.peaks}
    known |= {peak.threads: PeakSpec(**asdict(peak)) for peak in found}
    stored = tuple(known[count] for count in sorted(known))
    update_device(workspace, device.model_copy(update={"peaks": stored}))
    print_table([asdict(peak) for peak in found], as_json)


def _cpus_of(device: DeviceFile, threads: int) -> tuple[int, ...]:
    if not device.kind_of.is_host_cpu:
        raise UsageError(
            f"the peaks of device {device.name} of kind {device.kind} cannot be measured",
            f"measure those of a processor: `fleetrank devices peaks {LOCAL_CPU}`",
        )
    own = find_device(load_devices(current().workspace), LOCAL_CPU)
    if device.name != own.name:
        raise UsageError(
            f"device {device.name} is the processor of another host",
            f"run `fleetrank devices peaks {LOCAL_CPU}` on that host, and copy its device file",
        )
    cpus = cpus_one_per_core()
    if threads > len(cpus):
        raise UsageError(
            f"{threads} threads need more than the {len(cpus)} CPUs of this host",
            f"give at most {len(cpus)} threads",
        )
    return cpus
