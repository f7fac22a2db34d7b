"""Hosts of a fleet as namespaces of this machine: own address, processes, names and folders.

Their bridge lies in a namespace, too, so the machine's own network is not touched. One fleet at a
time: whoever holds the lock removes what a killed run left behind. On them a Ray cluster is started
as `docs/cluster.md` says.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from programs import need, why_missing
from waiting import wait_until

PREFIX = "flr-"
SWITCH = f"{PREFIX}switch"
UNSHARE_FLAGS = ("-m", "-u", "-i", "-p", "-f", "--mount-proc", "--kill-child")
_NOBODY = "02:00:00:00:00:01"
"""An address that no interface has: a frame to it is lost, and nobody says so."""
_PATH = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
_INIT = """
set -e
hostname "$1"
mount -t tmpfs -o size=1g tmpfs /dev/shm
mount -t tmpfs -o size=10m tmpfs /run
mkdir -m 755 /run/sshd
mkdir -p /tmp/ray
mount --bind "$2/ray" /tmp/ray
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/passwd" /etc/passwd
echo ready
while :; do sleep 3600 & wait; done
"""
"""The first process of a host; as such it also reaps what loses its parent."""


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
    _unheard_by: set[str] = field(default_factory=set)
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
        run_ip("-n", SWITCH, "link", "set", "dev", self.name, "up")
        unshare = ["unshare", *UNSHARE_FLAGS]
        inside = ["ip", "netns", "exec", f"{PREFIX}{self.name}", *unshare, "bash", "-c", _INIT]
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
        run_ip("-n", SWITCH, "link", "set", "dev", self.name, "down")

    def silence(self, *others: "NamespaceHost") -> None:
        """Loses all that it sends to others from here on; what they send still arrives."""
        for other in others:
            self._neighbour("replace", other.address, "lladdr", _NOBODY, "nud", "permanent")
            self._unheard_by.add(other.address)

    def restore(self) -> None:
        """Plugs the network cable in again, and loses nothing more."""
        run_ip("-n", SWITCH, "link", "set", "dev", self.name, "up")
        while self._unheard_by:
            self._neighbour("del", self._unheard_by.pop())

    def _neighbour(self, change: str, *words: str) -> None:
        run_ip("-n", f"{PREFIX}{self.name}", "neigh", change, *words, "dev", "eth0")

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


def _pid_namespace(process: psutil.Process) -> Path:
    return Path(f"/proc/{process.pid}/ns/pid").readlink()


def run_ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


_NETWORK = "10.213.7"
RAY_FOLDER = Path("/tmp/ray")
"""Where Ray keeps sessions; the names of its sockets allow no long path. Each host has its own."""


def why_impossible() -> str | None:
    """What this machine lacks for such hosts; `None` where it has all."""
    if os.geteuid() != 0:
        return "needs root"
    if (reason := why_missing("ip", "unshare", "nsenter", "setpriv")) is not None:
        return reason
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


def make_key(path: Path) -> str:
    """Makes a private key; the public one."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text()


def start_sshd(host: NamespaceHost, public_key: str) -> None:
    """Lets the owner of a key log in; skips the test without sshd."""
    folder = host.home / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "authorized_keys").write_text(public_key)
    # A login shell sets its variables anew.
    exports = [f"export {name}='{value}'\n" for name, value in host.env.items()]
    for name in (".profile", ".bashrc"):
        (host.home / name).write_text("".join(exports))
    host_key = host.folder / "host_key"
    make_key(host_key)
    options = ["StrictModes=no", "UsePAM=no", f"PidFile={host.folder}/sshd.pid"]
    flags = [part for option in options for part in ("-o", option)]
    command = [str(need("sshd")), "-D", "-f", "/dev/null", "-h", str(host_key), *flags]
    host.start(command, log=host.folder / "sshd.log")


@contextlib.contextmanager
def host_network(folder: Path) -> Iterator[HostNetwork]:
    """A bridge without hosts; all that is added to it is gone afterwards, however it ends."""
    # The folder itself is the lock: of every session on this machine, and nothing is left in it.
    lock = os.open(RAY_FOLDER.parent, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    RAY_FOLDER.mkdir(exist_ok=True)
    try:
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
    finally:
        with contextlib.suppress(OSError):
            RAY_FOLDER.rmdir()  # unless another Ray uses it
        os.close(lock)


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


_PORT = 6379
_START_TIMEOUT_S = 120.0
RAY_ENV = {
    "RAY_AUTH_MODE": "token",
    "RAY_worker_niceness": "0",
    "RAY_worker_oom_score_adjustment": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A cut link is noticed after 8 s instead of 64 s.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    # A raylet whose head is gone ends after this long, for its supervisor to start another.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
}
_COMMON = [
    "--labels=fleetrank-host={name}",
    "--node-ip-address={address}",
    "--object-store-memory=100000000",
    "--include-log-monitor=false",
    "--num-cpus=1",
]
_SUPERVISED = "while true; do {command} --block; sleep 1; done"
_NODES = """
import json, sys
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10).values()
print(json.dumps([[node.labels["fleetrank-host"], node.state == 0] for node in nodes]))
"""


@dataclass(slots=True, kw_only=True)
class RayCluster:
    """The first host started is the head; on each, a loop starts Ray again."""

    network: HostNetwork
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    head: NamespaceHost | None = None

    @property
    def address(self) -> str:
        """What `--cluster` takes."""
        if self.head is None:
            raise RuntimeError("no head was started")
        return f"{self.head.address}:{_PORT}"

    def start(self, host: NamespaceHost) -> None:
        """Starts Ray and waits until it has joined; hosts have to be started one by one."""
        self._give_token(host)
        command = [str(Path(sys.executable).parent / "ray"), "start", *self._options(host)]
        log = host.folder / "ray.log"
        loop = _SUPERVISED.format(command=shlex.join(command))
        host.start(["bash", "-c", loop, "fleetrank-ray-loop"], log=log)
        self.wait_for(host.name, is_alive=True, timeout_s=_START_TIMEOUT_S)

    def mend(self, names: Sequence[str]) -> None:
        """Makes hosts well that a fault left off, cut or without Ray; the head has to be up."""
        for name in names:
            host = self.network.hosts[name]
            if not host.is_on:
                host.power_on()
                self.start(host)
            host.restore()
        wait_until(lambda: self.alive() >= set(names), f"{names} to be alive", 60.0)

    def alive(self) -> set[str]:
        """Hosts the head counts among the living."""
        if self.head is None:
            return set()
        try:
            done = self.head.run([sys.executable, "-c", _NODES, self.address], timeout_s=30)
        except subprocess.TimeoutExpired:
            return set()
        if done.returncode:
            return set()
        # A host that came back is in the list twice, dead and alive.
        return {name for name, is_alive in json.loads(done.stdout) if is_alive}

    def wait_for(self, name: str, *, is_alive: bool, timeout_s: float) -> None:
        """Waits until the head counts a host among the living, or no more."""
        deadline_s = time.monotonic() + timeout_s
        while (name in self.alive()) is not is_alive:
            if time.monotonic() > deadline_s:
                state = "alive" if is_alive else "dead"
                raise TimeoutError(
                    f"{name} was not {state} after {timeout_s} s; living: {self.alive()}"
                )
            time.sleep(0.2)

    def _options(self, host: NamespaceHost) -> list[str]:
        own = [part.format(name=host.name, address=host.address) for part in _COMMON]
        if self.head is None or self.head is host:
            self.head = host
            return ["--head", f"--port={_PORT}", "--include-dashboard=false", *own]
        return [f"--address={self.address}", *own]

    def _give_token(self, host: NamespaceHost) -> None:
        folder = host.home / ".ray"
        folder.mkdir(exist_ok=True)
        (folder / "auth_token").touch(mode=0o600)
        (folder / "auth_token").write_text(self.token)
        host.extra_env.update(RAY_ENV)
