"""Hosts of a fleet as namespaces of this machine: own addresses, processes, names and folders.

Each host is a network namespace on a bridge that lies in a namespace too, so that the machine's own
network is not touched. One fleet at a time: whoever holds the lock removes what a killed run left.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_PREFIX = "flr-"
_SWITCH = f"{_PREFIX}switch"
_NETWORK = "10.213.7"
_LOCK = Path("/tmp/fleetrank-test-hosts.lock")
RAY_FOLDER = Path("/tmp/ray")
"""Where Ray keeps sessions; the names of its sockets allow no long path."""
_PATH = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
_INIT = """
set -e
hostname "$1"
mount -t tmpfs -o size=1g tmpfs /dev/shm
mount -t tmpfs -o size=10m tmpfs /run
mkdir -m 755 /run/sshd
mount --bind "$2/ray" /tmp/ray
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/passwd" /etc/passwd
echo ready
while :; do sleep 3600 & wait; done
"""
"""The first process of a host; as such it also reaps what loses its parent."""


def why_impossible() -> str | None:
    """What this machine lacks for such hosts; `None` where it has all."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in ("ip", "unshare", "nsenter", "setpriv") if not shutil.which(name)]
    if missing:
        return f"needs {' '.join(missing)} (iproute2, util-linux)"
    name = f"{_PREFIX}try"
    tried = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.decode()}"


@dataclass(slots=True, kw_only=True)
class NamespaceHost:
    """One host. It is on after it was added; its folders outlive its processes.

    Attributes:
        folder: its files on this machine: `home`, `run`, `ray`.
        extra_env: variables of every process started from here on.
    """

    name: str
    address: str
    folder: Path
    extra_env: dict[str, str] = field(default_factory=dict)
    _power: subprocess.Popen[str] | None = None
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def is_on(self) -> bool:
        return self._power is not None

    @property
    def env(self) -> dict[str, str]:
        """What a user's shell on this host has."""
        given = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        own = {
            "PATH": _PATH,
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "LANG": "C.UTF-8",
        }
        return own | given | self.extra_env

    def power_on(self) -> None:
        """Starts the host: its namespaces, and nothing in them."""
        _ip("-n", _SWITCH, "link", "set", "dev", self.name, "up")
        unshare = ["unshare", "-m", "-u", "-i", "-p", "-f", "--mount-proc", "--kill-child"]
        inside = ["ip", "netns", "exec", f"{_PREFIX}{self.name}", *unshare, "bash", "-c", _INIT]
        self._power = subprocess.Popen(
            # A run that is killed takes its hosts with it.
            ["setpriv", "--pdeathsig", "KILL", *inside, "init", self.name, str(self.folder)],
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": _PATH},
        )
        if self._power.stdout is None or self._power.stdout.readline() != "ready\n":
            raise RuntimeError(f"the namespaces of {self.name} did not start")

    def power_off(self) -> None:
        """Ends everything on the host at once; the others see neither an end nor a reset."""
        if self._power is None:
            return
        self.cut()
        first = self._first()
        self._power.kill()
        self._power.communicate()
        self._power = None
        # The end of `unshare` alone does not say that the last process is gone.
        wait_until(lambda: not psutil.pid_exists(first.pid), "the host's end", 10.0)
        for process in self._started:
            process.wait(10.0)
        self._started.clear()

    def cut(self) -> None:
        """Pulls the network cable."""
        _ip("-n", _SWITCH, "link", "set", "dev", self.name, "down")

    def restore(self) -> None:
        """Plugs the network cable in again."""
        _ip("-n", _SWITCH, "link", "set", "dev", self.name, "up")

    def start(
        self, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> "HostProcess":
        """Starts a command with its output, both streams, in a file."""
        with log.open("ab") as file:
            outer = subprocess.Popen(
                [*self._enter(), *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.env | dict(env or {}),
                start_new_session=True,
            )
        self._started.append(outer)
        return HostProcess(outer=outer, log=log)

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 120.0,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; raises `TimeoutExpired` past the limit."""
        return subprocess.run(
            [*self._enter(), *command],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=self.env | dict(env or {}),
        )

    def processes(self, text: str = "") -> list[psutil.Process]:
        """What runs on the host and has `text` in its command line; its first process never."""
        first = self._first()
        space = _pid_namespace(first)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                is_here = process.pid != first.pid and _pid_namespace(process) == space
                is_alive = process.status() != psutil.STATUS_ZOMBIE
                if is_here and is_alive and text in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def kill(self, text: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Signals what has `text` in its command line; returns to how many."""
        found = self.processes(text)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return len(found)

    def path(self, path: Path) -> Path:
        """The place of a path of the host, mounts included, as this machine sees it."""
        return Path(f"/proc/{self._first().pid}/root{path}")

    def _first(self) -> psutil.Process:
        if self._power is None:
            raise RuntimeError(f"{self.name} is off")
        children = Path(f"/proc/{self._power.pid}/task/{self._power.pid}/children").read_text()
        return psutil.Process(int(children.split()[0]))

    def _enter(self) -> list[str]:
        return ["nsenter", "-t", str(self._first().pid), "-m", "-u", "-i", "-p", "-n", "--"]


@dataclass(slots=True, kw_only=True)
class HostProcess:
    """A command that runs on a host."""

    outer: subprocess.Popen[bytes]
    log: Path

    @property
    def is_running(self) -> bool:
        return self.outer.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Signals the command itself, not what entered the host for it."""
        for process in psutil.Process(self.outer.pid).children():
            process.send_signal(number)
        if number is not signal.SIGSTOP:
            # What entered the host stops with its command, and would never tell of its end.
            self.outer.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the command, whatever it does."""
        self.signal(signal.SIGKILL)
        self.wait(10.0)

    def wait(self, timeout_s: float) -> int:
        """Waits for the end; negative codes are signals. Raises `TimeoutExpired`."""
        return self.outer.wait(timeout_s)


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
        space = f"{_PREFIX}{name}"
        _ip("netns", "add", space)
        _ip(
            "link",
            "add",
            "eth0",
            "netns",
            space,
            "type",
            *f"veth peer name {name} netns {_SWITCH}".split(),
        )
        _ip("-n", space, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", space, "link", "set", "dev", link, "up")
        _ip("-n", _SWITCH, "link", "set", "dev", name, "master", "bridge0", "up")
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
            _ip("netns", "add", _SWITCH)
            _ip("-n", _SWITCH, "link", "add", "bridge0", "type", "bridge")
            _ip("-n", _SWITCH, "link", "set", "bridge0", "up")
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
    listed = _ip("-o", "netns", "list").split("\n")
    for name in [line.split(" ")[0] for line in listed if line.startswith(_PREFIX)]:
        for pid in _ip("netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _ip("netns", "del", name)


def _passwd(home: Path) -> str:
    """This machine's users, with the host's own home for root and a key as the only way in."""
    lines = Path("/etc/passwd").read_text().splitlines()
    others = [line for line in lines if not line.startswith("root:")]
    return "\n".join([f"root:*:0:0:root:{home}:/bin/bash", *others, ""])


def _pid_namespace(process: psutil.Process) -> Path:
    return Path(f"/proc/{process.pid}/ns/pid").readlink()


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def wait_until(is_so: Callable[[], bool], what: str, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        time.sleep(0.05)
