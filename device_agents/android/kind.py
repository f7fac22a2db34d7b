"""The kind `android`: one phone over adb."""

from collections.abc import Sequence

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.kind import (
    DeviceOptions,
    HostCheck,
    HostShare,
    Kind,
    LogReader,
    Presence,
    Traits,
)
from fleetrank.device_agents.contract.registration import (
    Discoverer,
    Registrar,
    VirtualDevices,
    VirtualMode,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Origin, Runtime


def _create_agent(options: DeviceOptions) -> Agent:
    from fleetrank.device_agents.android.agent import AndroidAgent

    return AndroidAgent(options)


def _traits_of(options: DeviceOptions) -> Traits:
    is_virtual = "virtual" in options
    # A virtual phone in real mode takes the host's lease itself, while it computes. If dispatch
    # took it too, the program would wait for its caller.
    is_on_host = options.get("virtual") == VirtualMode.REAL
    return Traits(
        origin=Origin.VIRTUAL if is_virtual else Origin.MEASURED,
        share=HostShare.NONE if is_on_host else HostShare.BESIDE,
        needs_quiet=is_on_host,
    )


def _default_backend(runtime: Runtime) -> str:
    from fleetrank.device_agents.android.programs import phone_program
    from fleetrank.device_agents.runtimes import runner

    if runtime not in phone_program.NAME_OF_RUNTIME:
        return runner.default_backend(runtime)
    return phone_program.create_program(runtime).capability.default_backend


def _seen_here() -> tuple[str, ...] | None:
    """Serials that this host's adb server lists; starts no server, `None` if no server runs."""
    from fleetrank.device_agents.android.adb.adb_server import AdbServer

    try:
        server = AdbServer()
        return tuple(seen.serial for seen in server.devices()) if server.answers() else None
    except FleetError:
        return None  # no adb on this host


def _why_not_profiled(execution: Execution) -> str | None:
    from fleetrank.device_agents.android.programs.phone_program import why_not_profiled

    return why_not_profiled(execution)


def _check_host() -> Sequence[HostCheck]:
    from fleetrank.device_agents.android.registration.discovery import check_adb

    return check_adb()


def _registrar(options: DeviceOptions) -> Registrar:
    from fleetrank.device_agents.android.registration.registrar import PhoneRegistrar

    return PhoneRegistrar(options)


def _discoverer() -> Discoverer:
    from fleetrank.device_agents.android.registration.discovery import PhoneDiscoverer

    return PhoneDiscoverer()


def _virtual_devices() -> VirtualDevices:
    from fleetrank.device_agents.android.registration.virtual import VirtualPhones

    return VirtualPhones()


def _log_reader() -> LogReader:
    from fleetrank.device_agents.android.execution.raw_log import LOGS

    return LOGS


ANDROID = Kind(
    create_agent=_create_agent,
    traits_of=_traits_of,
    default_backend=_default_backend,
    presence=Presence(
        noun="phones",
        seen_here=_seen_here,
        # A server that does not list a phone now can list it when it is measured.
        why_absent=lambda _options, _seen: None,
    ),
    check_host=_check_host,
    address_option="adb",
    registrar=_registrar,
    discoverer=_discoverer,
    virtual_devices=_virtual_devices,
    log_reader=_log_reader,
    why_not_profiled=_why_not_profiled,
)
