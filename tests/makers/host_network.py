"""The network of a fleet: hosts made of namespaces, on a bridge that lies in one of its own.

So the machine's own network is not touched. One fleet at a time: whoever holds the lock removes
what a killed run left behind.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from namespace_hosts import PREFIX, SWITCH, UNSHARE_FLAGS, NamespaceHost, run_ip

_NETWORK = "10.213.7"
_LOCK = Path("/tmp/fleetrank-test-hosts.lock")
RAY_FOLDER = Path("/tmp/ray")
"""Where Ray keeps sessions; the names of its sockets allow no long path."""


def why_impossible() -> str | None:
    """What this machine lacks for such hosts; `None` where it has all."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in ("ip", "unshare", "nsenter", "setpriv") if not shutil.which(name)]
    if missing:
        return f"needs {' '.join(missing)} (iproute2, util-linux)"
    try:
        _try_all(f"{PREFIX}try")
    except RuntimeError as error:
        return f"no namespaces here: {error}"
    return None


def _try_all(name: str) -> None:
    """Everything a fleet is made of, once."""
    run_ip("netns", "add", name)
    try:
        run_ip("-n", name, "link", "add", "bridge0", "type", "bridge")
        run_ip("-n", name, "link", "add", "a0", *["type", "veth", "peer", "name", "a1"])
        command = ["unshare", *UNSHARE_FLAGS, "true"]
        tried = subprocess.run(command, check=False, capture_output=True, text=True)
        if tried.returncode:
            raise RuntimeError(tried.stderr.strip())
    finally:
        run_ip("netns", "del", name)


@dataclass(slots=True, kw_only=True)
class HostNetwork:
    """The hosts on one bridge."""

    folder: Path
    hosts: dict[str, NamespaceHost] = field(default_factory=dict)

    def add(self, name: str) -> NamespaceHost:
        """Makes a host, on and connected. Names are short: they name a network interface too."""
        number = len(self.hosts) + 1
        host = NamespaceHost(name=name, address=f"{_NETWORK}.{number}", folder=self.folder / name)
        for part in ("home", "run", "ray"):
            (host.folder / part).mkdir(parents=True)
        (host.folder / "run").chmod(0o700)
        (host.folder / "hosts").touch()
        (host.folder / "passwd").write_text(_passwd(host.home))
        self.hosts[name] = host
        self._write_names()
        space = f"{PREFIX}{name}"
        run_ip("netns", "add", space)
        run_ip(
            "link",
            "add",
            "eth0",
            "netns",
            space,
            "type",
            *f"veth peer name {name} netns {SWITCH}".split(),
        )
        run_ip("-n", space, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run_ip("-n", space, "link", "set", "dev", link, "up")
        run_ip("-n", SWITCH, "link", "set", "dev", name, "master", "bridge0", "up")
        host.power_on()
        return host

    def _write_names(self) -> None:
        lines = [f"{host.address} {host.name}" for host in self.hosts.values()]
        for host in self.hosts.values():
            # In place: the file is mounted into the host.
            (host.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))


@contextlib.contextmanager
def host_network(folder: Path) -> Iterator[HostNetwork]:
    """A bridge without hosts; all that is added to it is gone afterwards, however it ends."""
    RAY_FOLDER.mkdir(exist_ok=True)
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_all()
        try:
            run_ip("netns", "add", SWITCH)
            run_ip("-n", SWITCH, "link", "add", "bridge0", "type", "bridge")
            run_ip("-n", SWITCH, "link", "set", "bridge0", "up")
            network = HostNetwork(folder=folder)
            try:
                yield network
            finally:
                for host in network.hosts.values():
                    host.power_off()
        finally:
            _remove_all()


def _remove_all() -> None:
    """Ends whatever runs in namespaces of ours and removes them."""
    listed = run_ip("-o", "netns", "list").split("\n")
    for name in [line.split(" ")[0] for line in listed if line.startswith(PREFIX)]:
        for pid in run_ip("netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        run_ip("netns", "del", name)


def _passwd(home: Path) -> str:
    """This machine's users, with the host's own home for root and a key as the only way in."""
    lines = Path("/etc/passwd").read_text().splitlines()
    others = [line for line in lines if not line.startswith("root:")]
    return "\n".join([f"root:*:0:0:root:{home}:/bin/bash", *others, ""])
