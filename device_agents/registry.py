"""The kinds of devices. Adding one is one entry of `KINDS`; other packages add theirs.

Nothing here loads a runtime or contacts a device: `later` imports a function at its first call.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.kind import (
    DeviceKind,
    DeviceOptions,
    EnergyMeter,
    HostShare,
    Kind,
    Pinning,
    Presence,
    Traits,
    VirtualMode,
    origin_of,
    why_no_kind,
)
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.entry_points import Outside
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.formats import OUTSIDE_RUNTIMES
from fleetrank.foundation.registry import later
from fleetrank.foundation.vocabulary import Origin, Runtime
from fleetrank.foundation.wording import did_you_mean


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
_REPLICATED = f"{_HERE}.linux.replica_client:why_not_replicated"
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
        check_host=later(f"{_HERE}.android.discovery:check_adb"),
        address_option="adb",
        registrar=later(f"{_HERE}.android.phone_registration:PhoneRegistrar"),
        discoverer=later(f"{_HERE}.android.discovery:PhoneDiscoverer"),
        why_not_profiled=later(f"{_HERE}.android.programs.phone_program:why_not_profiled"),
    ),
    "board": Kind(
        create_agent=later(f"{_HERE}.board.agent:BoardAgent"),
        traits_of=_board_traits,
        default_backend=later(_BACKEND),
        address_option="ssh",
        registrar=later(f"{_HERE}.board.board_registrar:BoardRegistrar"),
        why_not_profiled=later(_PROFILED),
        why_not_replicated=later(_REPLICATED),
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
        default_backend=later(f"{_HERE}.cuda.gpu_presence:default_backend"),
        check_library=later(_LIBRARY),
        is_probed_when_added=True,
        presence=Presence(
            noun="gpus",
            seen_here=later(f"{_HERE}.cuda.gpu_presence:seen_here"),
            why_absent=later(f"{_HERE}.cuda.gpu_presence:why_absent"),
        ),
        check_host=later(f"{_HERE}.cuda.gpu_presence:check_host"),
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


OUTSIDE_KINDS: Outside[DeviceKind] = Outside("device kind", "fleetrank.kinds", KINDS, why_no_kind)
_AGENT_METHODS = ("probe", "why_unsupported", "longest_s", "measure", "infer")
T = TypeVar("T")


def load_kind(name: str) -> Kind:
    """The kind of this name, of fleetrank or of another package.

    Raises:
        PermanentError: unknown kind.
        EntryPointError: the package that adds it is broken.
    """
    if name in KINDS:
        return KINDS[name]
    found = _outside_kind(name)
    if found is not None:
        return found
    known = sorted((*KINDS, *OUTSIDE_KINDS.names()))
    raise PermanentError(
        f"unknown device kind '{name}'",
        f"{did_you_mean(name, known)}use one of {', '.join(known)}, or install its package "
        "(docs/extend.md)",
    )


def all_kinds() -> Mapping[str, Kind]:
    """Every kind by name; a broken one of another package is left out, the doctor lists it."""
    return {**KINDS, **{name: load_kind(name) for name in OUTSIDE_KINDS.loaded()}}


@cache
def _outside_kind(name: str) -> Kind | None:
    """A kind of another package; functions that break the contract raise `PermanentError`."""
    given = OUTSIDE_KINDS.load(name)
    if given is None:
        return None
    stated = {one.name: getattr(given, one.name) for one in fields(DeviceKind)}
    if given.registrar is not None:
        stated |= {"name": name, "address_option": "address"}
    return Kind(
        **{
            **stated,
            "create_agent": _kept(
                name,
                given.create_agent,
                lambda found: all(callable(getattr(found, one, None)) for one in _AGENT_METHODS),
            ),
            "traits_of": _kept(name, given.traits_of, lambda found: isinstance(found, Traits)),
            "default_backend": _kept(
                name, given.default_backend, lambda found: isinstance(found, str) and found != ""
            ),
        }
    )


def _kept(
    name: str, function: Callable[..., T], is_valid: Callable[[object], bool]
) -> Callable[..., T]:
    maker = OUTSIDE_KINDS.maker_of(name)

    def call(*arguments: Any) -> T:
        with failing_as(
            PermanentError,
            f"device kind {name!r} of {maker} is broken",
            f"update or remove {maker}",
        ):
            found = function(*arguments)
            if not is_valid(found):
                raise TypeError(f"it returned {type(found).__name__}")
            return found

    return call


def makers_of(kind: str, runtime: Runtime) -> tuple[str, ...]:
    """Packages beside fleetrank that add the kind and the runtime, each with its version."""
    found = (OUTSIDE_KINDS.maker_of(kind), OUTSIDE_RUNTIMES.maker_of(runtime))
    return tuple(dict.fromkeys(one for one in found if one is not None))


def create_agent(kind: str, options: DeviceOptions) -> Agent:
    """Creates the agent of a device kind from the `options` of its device file.

    Every agent class takes its options as one mapping and rejects unknown names.

    Raises:
        PermanentError: unknown kind, or an option that the kind does not have.
        EntryPointError: the package that adds the kind is broken.
    """
    return load_kind(kind).create_agent(options)
