"""A board of this machine: a real sshd on a port of its own, with its own keys and home folder."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from waiting import wait_until

from fleetrank.device_agents.board.ssh.ssh_connection import SshConnection, SshTarget
from fleetrank.device_agents.contract.task import OptionValue

SSHD = Path("/usr/sbin/sshd")


def why_no_sshd() -> str | None:
    """What this machine lacks for such a board; `None` where it has all."""
    if not SSHD.exists():
        return "needs openssh-server"
    return None if Path("/run/sshd").is_dir() or os.geteuid() == 0 else "needs root"


@dataclass(slots=True, kw_only=True)
class SshBoard:
    """A board at `target`.

    Attributes:
        home: where its commands start.
        relay: the line to it.
        before: words that stand before sshd's command, such as those of `mounts`.
        login: shell commands that run at each login.
    """

    folder: Path
    home: Path
    port: int
    relay: "Relay"
    before: list[str] = field(default_factory=list)
    login: str = ""
    sshd: "subprocess.Popen[bytes] | None" = None

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def target(self) -> SshTarget:
        return SshTarget(host="board", config=str(self.config))

    @property
    def options(self) -> dict[str, OptionValue]:
        """The options that every device file of it has."""
        return {"ssh": "board", "ssh_config": str(self.config)}

    def start(self) -> None:
        script = self.folder / "login.sh"
        # Without its shell's own variables: what a board has, not what these tests have.
        script.write_text(
            f"cd {shlex.quote(str(self.home))} && export HOME=$PWD\n"
            f"unset PYTHONPATH XDG_CACHE_HOME XDG_RUNTIME_DIR\n{self.login}\n"
            'eval "$SSH_ORIGINAL_COMMAND"\n'
        )
        options = [
            "ListenAddress=127.0.0.1", f"Port={self.port}", "UsePAM=no", "StrictModes=no",
            f"AuthorizedKeysFile={self.folder}/authorized", f"PidFile={self.folder}/sshd.pid",
            "PasswordAuthentication=no", "PermitRootLogin=yes", "MaxStartups=100",
            f"ForceCommand=sh {script}",
        ]  # fmt: skip
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        flags = [part for option in options for part in ("-o", option)]
        argv = [
            *self.before,
            str(SSHD),
            "-D",
            "-e",
            "-f",
            "/dev/null",
            "-h",
            f"{self.folder}/host_key",
            *flags,
        ]
        with (self.folder / "sshd.log").open("ab") as log:
            self.sshd = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        wait_until(self.answers, f"sshd: {(self.folder / 'sshd.log').read_text()}")

    def stop(self) -> None:
        """Ends sshd with all its sessions, as a board does that loses power."""
        if self.sshd is None:
            return
        for pid in _with_children(self.sshd.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.sshd.wait(10.0)
        self.sshd = None

    def new_host_key(self) -> None:
        """What a board has after it was installed again."""
        (self.folder / "host_key").unlink()
        _make_key(self.folder / "host_key")

    def forget_user(self) -> None:
        (self.folder / "authorized").write_text("")

    @property
    def cache(self) -> Path:
        """Our folder on the board."""
        return self.home / ".cache" / "fleetrank-board"

    @property
    def kept(self) -> list[Path]:
        """Results on the board that were not acknowledged."""
        return [path for path in self.cache.glob("kept/*") if path.suffix == ".json"]

    def processes(self, word: str) -> "list[psutil.Process]":
        """What runs on the board with our code, by the last word of its command."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                is_ours = len(words) > 2 and "fleetrank-board/code/" in words[-2]
                if is_ours and process.cwd() == str(self.home) and words[-1] == word:
                    found.append(process)
        return found

    def answers(self) -> bool:
        """Whether something listens at its port."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False


@dataclass(slots=True, kw_only=True)
class Relay:
    """The network between ssh and a board: it can be cut in silence, or with a reset."""

    to_port: int
    listener: socket.socket
    pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)
    _flows: threading.Event = field(default_factory=threading.Event)
    _is_closed: bool = False
    _left: int | None = None

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def cut_after(self, n_bytes: int) -> None:
        """Cuts the line once so many more bytes have passed to the board."""
        self._left = n_bytes

    def cut(self) -> None:
        """From now on bytes are held back, as by a cable that was pulled."""
        self._flows.clear()

    def restore(self) -> None:
        self._flows.set()

    def reset(self) -> None:
        """Ends the connections, as a router does that starts again."""
        for pair in self.pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self.pairs.clear()

    def close(self) -> None:
        self._is_closed = True
        self.restore()
        self.reset()
        self.listener.close()

    def serve(self) -> None:
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to_port), 5.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self.pairs.append((near, far))
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        back = threading.Thread(target=self._copy, args=(far, near), daemon=True)
        back.start()
        self._copy(near, far)
        back.join()
        for end in (near, far):
            end.close()

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := one.recv(65_536):
                self._count(one, len(chunk))
                self._flows.wait()
                other.sendall(chunk)
        self._flows.wait()
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count(self, source: socket.socket, n_bytes: int) -> None:
        if self._left is not None and any(source is near for near, _ in self.pairs):
            self._left -= n_bytes
            if self._left < 0:
                self._left = None
                self.cut()


@contextlib.contextmanager
def ssh_board(
    *, home_name: str = "home", login: str = "", is_started: bool = True
) -> Iterator[SshBoard]:
    """A board that accepts one new key, and the configuration of a user who knows its host key."""
    with tempfile.TemporaryDirectory(prefix="board-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        home = folder / home_name
        home.mkdir()
        for key in ("host_key", "user_key"):
            _make_key(folder / key)
        (folder / "authorized").write_text((folder / "user_key.pub").read_text())
        port = _free_port()
        listener = socket.create_server(("127.0.0.1", 0))
        relay = Relay(to_port=port, listener=listener)
        relay.serve()
        board = SshBoard(folder=folder, home=home, port=port, relay=relay, login=login)
        _write_config(board)
        try:
            if is_started:
                board.start()
            yield board
        finally:
            SshConnection(board.target).close()
            relay.close()
            board.stop()


def _write_config(board: SshBoard) -> None:
    folder = board.folder
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{board.relay.port} {public}")
    lines = [
        "Host board", "  HostName 127.0.0.1", f"  Port {board.relay.port}",
        f"  IdentityFile {folder}/user_key", "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {folder}/known_hosts", "  GlobalKnownHostsFile /dev/null",
    ]  # fmt: skip
    board.config.write_text("\n".join([*lines, ""]))


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _with_children(pid: int) -> list[int]:
    process = psutil.Process(pid)
    return [pid, *(child.pid for child in process.children(recursive=True))]
