"""Which service a client's OPEN names."""

from collections.abc import Awaitable, Callable
from functools import partial

from fleetrank.device_agents.virtual_phone.daemon.shell_service import serve_packets, serve_plain
from fleetrank.device_agents.virtual_phone.daemon.stream import Stream
from fleetrank.device_agents.virtual_phone.daemon.sync_service import serve_files
from fleetrank.device_agents.virtual_phone.handset.virtual_phone import VirtualPhone

Service = Callable[[Stream], Awaitable[None]]


def find_service(name: str, phone: VirtualPhone) -> Service | None:
    """Returns what to run on the stream, or `None` for what this phone does not offer.

    Args:
        name: as the client sends it: `shell,v2,raw:ls`, `exec:ls`, `sync:`, `reboot:`.
        phone: the phone.
    """
    if "\0" in name:
        return None
    kind, _, argument = name.partition(":")
    kind, *options = kind.split(",")
    if kind == "shell" and "v2" in options:
        has_packets = "shell_v2" in phone.features()
        return partial(serve_packets, phone, argument) if has_packets else None
    if kind in ("shell", "exec"):
        return partial(serve_plain, phone, argument)
    if kind == "sync":
        return partial(serve_files, phone)
    if kind == "reboot":
        return partial(_reboot, phone)
    return None


async def _reboot(phone: VirtualPhone, stream: Stream) -> None:
    del stream  # a phone says nothing before it goes
    phone.begin_reboot()
