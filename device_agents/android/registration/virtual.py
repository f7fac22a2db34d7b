"""Virtual phones for users without a real one, served in this process and connected to adb."""

import signal
import threading
from collections import Counter
from collections.abc import Iterable

from fleetrank.device_agents.android.adb.adb_server import AdbServer
from fleetrank.device_agents.contract.registration import Say, VirtualRequest
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.device_agents.virtual_phone.daemon.farm import FarmedPhone, FarmSpec, VirtualFarm
from fleetrank.device_agents.virtual_phone.handset.profile import DEFAULT_PROFILES, load_profiles
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.process.temporary import temporary_folder


class VirtualPhones:
    """The phones implement the device side of the adb protocol, for the user's adb key only."""

    @property
    def profiles(self) -> tuple[str, ...]:
        """Well-known phones, by name."""
        return tuple(load_profiles())

    def serve(self, request: VirtualRequest, say: Say) -> None:
        """Serves phones until SIGINT or SIGTERM, then disconnects adb and deletes their files."""
        # Without the handlers adb would list the phones as offline forever and their files would
        # remain. SIGINT too: a script's shell makes its background jobs ignore SIGINT, and then
        # Python installs no handler.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        try:
            server = AdbServer()
            server.start()  # creates the key that the phones require
        except MissingLibraryError:
            server = None
        with temporary_folder("phones") as temporary:
            spec = FarmSpec(
                folder=request.folder or temporary,
                count=request.count,
                mode=request.mode,
                profiles=request.profiles or DEFAULT_PROFILES,
                seed=request.seed,
                first_port=request.first_port,
            )
            with VirtualFarm(spec) as farm:
                _serve(farm.phones, server, say)


def _serve(phones: Iterable[FarmedPhone], server: AdbServer | None, say: Say) -> None:
    for phone in phones:
        say(f"{phone.address}  {phone.serial}  {phone.profile}  {phone.mode.value}")
    try:
        if server is None:
            say("adb is not installed. Install the extra `android`, then start again.")
        else:
            _connect(phones, server, say)
        say("Press Ctrl-C to stop the phones.")
        threading.Event().wait()
    except KeyboardInterrupt:
        say("ended")
    finally:
        if server is not None:
            _disconnect(phones, server)


def _connect(phones: Iterable[FarmedPhone], server: AdbServer, say: Say) -> None:
    for phone in phones:
        server.connect(phone.address)
    say("adb is connected to them. In another terminal:")
    say("  fleetrank devices discover")
    met: Counter[str] = Counter()
    for phone in phones:
        met[phone.profile] += 1
        number = f"-{met[phone.profile]}" if met[phone.profile] > 1 else ""
        name = f"virtual-{phone.profile}{number}"
        say(f"  fleetrank devices add --adb {phone.address} --name {name}")


def _disconnect(phones: Iterable[FarmedPhone], server: AdbServer) -> None:
    """Disconnects adb, which would otherwise list the phones as offline forever."""
    for phone in phones:
        try:
            server.disconnect(phone.address)
        except FleetError:
            return  # the adb server has ended, and its list with it
