"""The kinds of devices. Adding one is one entry of `KINDS`.

Nothing here loads a runtime or contacts a device: `later` imports a function at its first call.
"""

from collections.abc import Mapping

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.kind import (
    DeviceOptions,
    EnergyMeter,
    HostShare,
    Kind,
    Pinning,
    Presence,
    Traits,
    VirtualMode,
    origin_of,
)
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.registry import later
from fleetrank.foundation.vocabulary import Origin


def _phone_traits(options: DeviceOptions) -> Traits:
    mode = str(options.get("virtual"))
    # A virtual device in real mode takes the host's lease itself, while it computes. If dispatch
    # took it too, the program would wait for its caller.
    shares = {VirtualMode.REAL.value: HostShare.NONE, VirtualMode.EMULATED.value: HostShare.ALONE}
    return Traits(
        origin=origin_of(options.get("virtual")),
        share=shares.get(mode, HostShare.BESIDE),
        needs_quiet=mode in shares,
    )


def _board_traits(options: DeviceOptions) -> Traits:
    # No share: the agent itself takes the host's lease, and only while it sends a file.
    if options.get("gpu") is not None:
        # Without `infers`: an evaluation names no backend, and the default is the processor's.
        return Traits(share=HostShare.NONE, energy=EnergyMeter.DEVICE)
    return Traits(
        share=HostShare.NONE, pinning=Pinning.COUNTED, is_primed=True, takes_turns=True, infers=True
    )


def _simulated_traits(options: DeviceOptions) -> Traits:
    duration_s = options.get("duration_s", 0.0)
    # The options are not checked yet; the agent rejects what is not a duration.
    is_duration = isinstance(duration_s, int | float) and duration_s >= 0
    return Traits(
        origin=Origin.SIMULATED,
        pinning=Pinning.COUNTED,
        opens_files=False,
        repeat_s=float(duration_s) if is_duration else None,
    )


_CPU_TRAITS = Traits(
    infers=True,
    share=HostShare.ALONE,
    needs_quiet=True,
    pinning=Pinning.HOST_CORES,
    energy=EnergyMeter.HOST,
    is_primed=True,
    takes_turns=True,
)
# Alone, because the host's processor feeds the GPU.
_GPU_TRAITS = Traits(
    infers=True, share=HostShare.ALONE, needs_quiet=True, energy=EnergyMeter.DEVICE
)
_HERE = "fleetrank.device_agents"
_PROFILED = f"{_HERE}.profiling.profiler:why_not_profiled"
_REPLICATED = f"{_HERE}.host.round_client:why_not_replicated"
_LIBRARY = f"{_HERE}.runtimes.runner:check_library"
_BACKEND = f"{_HERE}.runtimes.runner:default_backend"

KINDS: Mapping[str, Kind] = {
    "android": Kind(
        create_agent=later(f"{_HERE}.android.agent:AndroidAgent"),
        traits_of=_phone_traits,
        default_backend=later(f"{_HERE}.android.programs.phone_program:default_backend"),
        presence=Presence(
            noun="phones",
            seen_here=later(f"{_HERE}.android.phone_registration:seen_here"),
            # A server that does not list a phone now can list it when it is measured.
            why_absent=lambda _options, _seen: None,
        ),
        check_host=later(f"{_HERE}.android.phone_registration:check_adb"),
        address_option="adb",
        registrar=later(f"{_HERE}.android.phone_registration:PhoneRegistrar"),
        discoverer=later(f"{_HERE}.android.phone_registration:PhoneDiscoverer"),
        why_not_profiled=later(f"{_HERE}.android.programs.phone_program:why_not_profiled"),
    ),
    "board": Kind(
        create_agent=later(f"{_HERE}.board.agent:BoardAgent"),
        traits_of=_board_traits,
        default_backend=later(_BACKEND),
        address_option="ssh",
        registrar=later(f"{_HERE}.board.board_registrar:BoardRegistrar"),
        why_not_profiled=later(_PROFILED),
    ),
    "cpu": Kind(
        create_agent=later(f"{_HERE}.cpu:CpuAgent"),
        traits_of=lambda _options: _CPU_TRAITS,
        default_backend=later(_BACKEND),
        check_library=later(_LIBRARY),
        is_host_cpu=True,
        why_not_profiled=later(_PROFILED),
        why_not_replicated=later(_REPLICATED),
    ),
    "cuda": Kind(
        create_agent=later(f"{_HERE}.cuda.agent:CudaAgent"),
        traits_of=lambda _options: _GPU_TRAITS,
        default_backend=later(f"{_HERE}.cuda.agent:default_backend"),
        check_library=later(_LIBRARY),
        is_probed_when_added=True,
        presence=Presence(
            noun="gpus",
            seen_here=later(f"{_HERE}.cuda.agent:seen_here"),
            why_absent=later(f"{_HERE}.cuda.agent:why_absent"),
        ),
        check_host=later(f"{_HERE}.cuda.agent:check_host"),
        why_not_profiled=later(_PROFILED),
        why_not_replicated=later(_REPLICATED),
    ),
    "simulated": Kind(
        create_agent=later(f"{_HERE}.simulated:SimulatedAgent"),
        traits_of=_simulated_traits,
        default_backend=later(_BACKEND),
    ),
}
HOST_CPU = "cpu"
"""The kind that every host has without a device file; it also verifies exported files."""


def load_kind(name: str) -> Kind:
    """The kind of this name.

    Raises:
        PermanentError: unknown kind.
    """
    if name not in KINDS:
        raise PermanentError(
            f"device kind {name!r} is not supported yet",
            f"use one of: {', '.join(sorted(KINDS))}; docs/gpu.md explains how to add one",
        )
    return KINDS[name]


def create_agent(kind: str, options: DeviceOptions) -> Agent:
    """Creates the agent of a device kind from the `options` of its device file.

    Every agent class takes its options as one mapping and rejects unknown names.

    Raises:
        PermanentError: unknown kind, or an option that the kind does not have.
    """
    return load_kind(kind).create_agent(options)
