"""Boards of this machine, with their own port, keys and home folder: sshd, or dropbear and BusyBox.

Folders that are read-only or have little room for one command, root's rights or not.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from programs import need
from waiting import wait_until

from fleetrank.device_agents.board.agent import BoardAgent
from fleetrank.device_agents.board.ssh import SshConnection, SshTarget
from fleetrank.device_agents.contract.task import OptionValue


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

    def agent(self, **options: OptionValue) -> BoardAgent:
        """Of this board, with this Python; it waits for nothing unless told to."""
        given = {"python": sys.executable, "max_wait_s": 0.0, "max_temp_c": 150.0, **options}
        return BoardAgent({**self.options, **given})

    def start(self) -> None:
        script = self.folder / "login.sh"
        runtime = self.folder / "run"
        runtime.mkdir(mode=0o700, exist_ok=True)
        # Without its shell's own variables: what a board has, not what these tests have.
        script.write_text(
            f"cd {shlex.quote(str(self.home))} && export HOME=$PWD\n"
            f"export XDG_RUNTIME_DIR={runtime} TMPDIR={runtime}\n"
            f"unset PYTHONPATH XDG_CACHE_HOME\n{self.login}\n"
            'eval "$SSH_ORIGINAL_COMMAND"\n'
        )
        options = [
            "ListenAddress=127.0.0.1", f"Port={self.port}", "UsePAM=no", "StrictModes=no",
            f"AuthorizedKeysFile={self.folder}/authorized", f"PidFile={self.folder}/sshd.pid",
            "PasswordAuthentication=no", "PermitRootLogin=yes", "MaxStartups=100",
            f"ForceCommand=sh {script}",
            # Bash does not read the .bashrc of whoever runs the tests, which can take seconds.
            "SetEnv=SHLVL=1",
        ]  # fmt: skip
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        flags = [part for option in options for part in ("-o", option)]
        argv = [
            *self.before,
            str(need("sshd")),
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
        """Ends sshd with all its sessions and our processes, as a board does that loses power."""
        for word in ("host", "worker"):
            for process in self.processes(word):
                process.kill()
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
    def kept(self) -> list[dict[str, object]]:
        """Results on the board; those that were acknowledged go with the last one."""
        spools = [path.read_text() for path in self.cache.glob("host-*/spool.jsonl")]
        # What follows the last line end is still being written.
        return [json.loads(line) for text in spools for line in text.split("\n")[:-1]]

    @property
    def files(self) -> list[Path]:
        """Artifacts on the board."""
        return list(self.cache.glob("host-*/files/*"))

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

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

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
                self._flows.wait()
                other.sendall(chunk)
        self._flows.wait()
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def ssh_board(
    *, home_name: str = "home", login: str = "", is_started: bool = True
) -> Iterator[SshBoard]:
    """A board that accepts one new key, and the configuration of a user who knows its host key.

    Skips the test where there is no sshd, or where it does not run.
    """
    need("sshd", "ssh-keygen")
    if os.geteuid() != 0 and not Path("/run/sshd").is_dir():
        pytest.skip("needs root, or the folder /run/sshd")
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


_UNSHARE = ["unshare", "--mount", "--propagation", "private"]


def why_no_mounts() -> str | None:
    """Why this process cannot mount anything for its children; `None` where it can."""
    if shutil.which("unshare") is None:
        return "there is no unshare (util-linux)"
    tried = subprocess.run(
        [*_command(), "mount", "-t", "tmpfs", "tmpfs", "/tmp"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else f"mounts are not permitted: {tried.stderr.decode()}"


def _command() -> list[str]:
    return _UNSHARE if os.geteuid() == 0 else [*_UNSHARE, "--user", "--map-root-user"]


DROPBEAR, BUSYBOX = "FLEETRANK_DROPBEAR", "FLEETRANK_BUSYBOX"
"""Variables with the paths of `dropbear` (beside it, `../bin/dropbearkey`) and of `busybox`."""
_LOGIN = """
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/shells" /etc/shells
shift
exec "$@"
"""


def why_no_dropbear() -> str | None:
    """What this machine lacks for such a board; `None` where it has all."""
    missing = [name for name in (DROPBEAR, BUSYBOX) if not os.environ.get(name)]
    if missing:
        return f"needs {' and '.join(missing)}"
    return why_no_mounts() if os.geteuid() == 0 else "needs root"


@contextlib.contextmanager
def dropbear_board() -> Iterator[SshBoard]:
    """A board whose only user logs in with BusyBox's shell; it has no sshd."""
    with ssh_board(is_started=False) as board:
        _make_login(board)
        _make_host_key(board)
        program = os.environ[DROPBEAR]
        command = [
            "unshare", "--mount", "--propagation", "private", "sh", "-ec", _LOGIN, "sh",
            str(board.folder), program, "-F", "-E", "-s", "-r", str(board.folder / "dropbear_key"),
            "-p", f"127.0.0.1:{board.port}", "-P", str(board.folder / "dropbear.pid"),
        ]  # fmt: skip
        with (board.folder / "sshd.log").open("ab") as log:
            board.sshd = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        wait_until(board.answers, "dropbear")
        yield board


def _make_login(board: SshBoard) -> None:
    """The user's shell is a link named `ash`, by which BusyBox knows what it is to be."""
    shell = board.folder / "ash"
    shell.symlink_to(os.environ[BUSYBOX])
    (board.folder / "passwd").write_text(f"root:x:0:0:root:{board.home}:{shell}\n")
    (board.folder / "shells").write_text(f"{shell}\n")
    keys = board.home / ".ssh"
    keys.mkdir(mode=0o700)
    (keys / "authorized_keys").write_text((board.folder / "user_key.pub").read_text())
    # Dropbear refuses a home that others can write to.
    for folder in (board.folder, board.home):
        folder.chmod(0o700)


def _make_host_key(board: SshBoard) -> None:
    maker = Path(os.environ[DROPBEAR]).parents[1] / "bin" / "dropbearkey"
    command = [str(maker), "-t", "ed25519", "-f", str(board.folder / "dropbear_key")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (public,) = [line for line in said.splitlines() if line.startswith("ssh-ed25519 ")]
    (board.folder / "known_hosts").write_text(f"[127.0.0.1]:{board.relay.port} {public}\n")
    config = board.config.read_text()
    board.config.write_text(f"{config}  User root\n")
