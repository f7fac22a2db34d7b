"""The kind `browser`; its entry point is in `pyproject.toml`, as that of another package."""

from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.contract.kind import DeviceKind, DeviceOptions, HostShare, Traits
from fleetrank.foundation.registry import later

_HERE = "fleetrank.device_agents.browser"


def _traits_of(options: DeviceOptions) -> Traits:
    # A browser of this computer computes on its cores.
    is_here = Place(listen=str(options.get("listen"))).is_here
    share = HostShare.ALONE if is_here else HostShare.NONE
    return Traits(share=share, needs_quiet=is_here, needs_acceptance=True)


KIND = DeviceKind(
    create_agent=later(f"{_HERE}.agent:BrowserAgent"),
    traits_of=_traits_of,
    default_backend=lambda _runtime: "wasm",
    registrar=later(f"{_HERE}.registrar:BrowserRegistrar"),
)
