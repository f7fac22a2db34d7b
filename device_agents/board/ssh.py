"""Runs commands on a machine over the system's OpenSSH client.

Keys, jump hosts, user names and known hosts are those of the user's own configuration. Nothing is
asked (`BatchMode`), and no host key is accepted: ssh's own rule decides, which refuses an unknown
key here because it cannot ask, and always refuses a changed one.
"""

import hashlib
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.board.ssh_text import TRANSPORT_FAILED, transport_error
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.errors import (
    MissingLibraryError,
    PermanentError,
    TimedOutError,
    TransientError,
)
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.lease import never_give_up, open_lease, runtime_folder, wait_for_lock
from fleetrank.foundation.supervised_child import ChildEnd, End, SupervisedChild

CONNECT_TIMEOUT_S = 10
ALIVE_S, ALIVE_COUNT = 5, 3
"""A line that was cut in silence is noticed after their product.

Source: labgrid issue 277: without them a dead board was not noticed for 2590 s."""
OPEN_LIMIT_S = 60.0
"""Time to connect through a slow board, or through several jump hosts."""
_PERSIST_S = 60
"""The shared connection ends this long after its last use."""
_LEAVE_NS = 2_000_000_000
"""For the end of a command whose output is complete; its connection is closed after that."""
_MOST_SOCKET_BYTES = 86
"""A socket's path has at most 107 bytes, and ssh appends 17 while it creates it.

Source: unix(7); OpenSSH mux.c."""
_HOST = re.compile(r"[\w\[][\w.@:%+/\[\]-]{0,250}")
_OPTIONS = (
    "BatchMode=yes", f"ConnectTimeout={CONNECT_TIMEOUT_S}", f"ServerAliveInterval={ALIVE_S}",
    f"ServerAliveCountMax={ALIVE_COUNT}", "LogLevel=ERROR", "RequestTTY=no", "RemoteCommand=none",
    "ForwardX11=no", "ForwardAgent=no", "PermitLocalCommand=no",
)  # fmt: skip
"""The last ones: what a person's configuration may add for logins by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """A machine in ssh's words.

    Attributes:
        host: alias of the configuration, `HOST` or `USER@HOST`.
        config: file in place of the user's `~/.ssh/config`; `None` uses the user's.
    """

    host: str
    config: str | None = None


class SshConnection:
    """Runs commands on one machine; the connections of a user's processes to it are shared.

    Safe to use from any thread.
    """

    def __init__(self, target: SshTarget) -> None:
        """Opens nothing yet.

        Raises:
            PermanentError: a host name that ssh could take for an option or a shell for a command.
        """
        if _HOST.fullmatch(target.host) is None:
            raise PermanentError(
                f"{target.host!r} is not a name for ssh",
                "use HOST, USER@HOST or an alias from ~/.ssh/config, without spaces and quotes",
            )
        self.target = target
        self._socket = _socket_path(target)

    def run(
        self,
        command: Sequence[str],
        *,
        sent: Iterable[bytes] = (),
        timeout_s: float,
        stop_requested: StopRequested = never_stop,
        is_complete: Callable[[bytearray], bool] = lambda _received: False,
    ) -> ChildEnd:
        """Runs a command there until its end; what it writes is in the result.

        Its standard input stays open until the end: the end of the input means that the
        connection ended.

        Args:
            command: program and arguments; each reaches the program as it is.
            sent: written to its standard input, in order.
            timeout_s: after this time the connection of the command is closed.
            stop_requested: called about ten times a second.
            is_complete: whether its output so far is all that is needed.

        Raises:
            TransientError: no connection, or it ended; the command may have run.
            TimedOutError: the time limit passed.
            UnusableDeviceError: the machine rejects this user, or its host key has changed.
        """
        self._open()
        argv = [*self._ssh(), "--", self.target.host, shlex.join(command)]
        deadline_ns = time.perf_counter_ns() + int(timeout_s * 1e9)
        with failing_as(TransientError, "ssh cannot be started", "free memory here", OSError):
            child = SupervisedChild(argv)
        # A send waits for the other side, and a board that hangs reads nothing.
        alarm = threading.Timer(timeout_s, child.kill)
        alarm.start()
        try:
            for part in sent:
                if child.has_ended() or stop_requested():
                    break
                child.send(part)
            end = child.wait(
                deadline_ns=deadline_ns,
                stop_requested=stop_requested,
                is_complete=is_complete,
            )
            if end is End.COMPLETE:
                child.wait(deadline_ns=time.perf_counter_ns() + _LEAVE_NS)
        finally:
            alarm.cancel()
            child.end()
        if end is End.ITSELF and time.perf_counter_ns() >= deadline_ns:
            end = End.TIME_LIMIT  # the alarm ended it
        return self._judged(child.ended(end, timeout_s))

    def close(self) -> None:
        """Ends the shared connection now; other processes that use it lose theirs."""
        if self._socket is not None:
            self._control("exit")

    def _judged(self, end: ChildEnd) -> ChildEnd:
        if end.end is End.TIME_LIMIT:
            raise TimedOutError(
                f"{self.target.host} gave no answer within {end.timeout_s:g} s",
                "check that the board does not hang",
            )
        if end.end is End.ITSELF and end.exit_code == TRANSPORT_FAILED:
            raise transport_error(self.target.host, end.stderr)
        return end

    def _ssh(self) -> list[str]:
        """The client with its options, up to the host."""
        program = shutil.which("ssh")
        if program is None:
            raise MissingLibraryError("this host has no ssh", "install OpenSSH's client")
        socket = "none" if self._socket is None else str(self._socket)
        options = (*_OPTIONS, f"ControlPath={socket}")
        config = () if self.target.config is None else ("-F", self.target.config)
        return [program, *config, *(word for one in options for word in ("-o", one))]

    def _open(self) -> None:
        """Starts the shared connection if it does not exist yet; it lives in a separate process.

        The first command would otherwise become its owner, and would not end before it.
        """
        if self._socket is None:
            return
        with open_lease(self._socket.with_suffix(".lock")) as lock:
            wait_for_lock(lock, never_give_up)
            if self._control("check") == 0:
                return
            # Left by a client that was killed: ssh would not use it and not replace it.
            self._socket.unlink(missing_ok=True)
            self._start_shared()

    def _start_shared(self) -> None:
        shared = ("ControlMaster=yes", f"ControlPersist={_PERSIST_S}", "ClearAllForwardings=yes")
        words = [word for one in shared for word in ("-o", one)]
        argv = [*self._ssh(), *words, "-f", "-N", "--", self.target.host]
        # A file, not a pipe: the process in the background keeps it open.
        with tempfile.TemporaryFile() as stderr:
            try:
                code = subprocess.run(
                    argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=stderr, timeout=OPEN_LIMIT_S, start_new_session=True,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired as error:
                raise TimedOutError(
                    f"no connection to {self.target.host} within {OPEN_LIMIT_S:g} s",
                    "check that the board is on and reachable",
                ) from error
            if code != 0:
                stderr.seek(0)
                text = stderr.read().decode("utf-8", errors="replace")
                raise transport_error(self.target.host, text)

    def _control(self, word: str) -> int:
        """Asks the shared connection; 0 means that it lives and did it."""
        argv = [*self._ssh(), "-O", word, "--", self.target.host]
        try:
            return subprocess.run(
                argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, timeout=CONNECT_TIMEOUT_S,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return TRANSPORT_FAILED


def _socket_path(target: SshTarget) -> Path | None:
    """The socket of a shared connection; `None` if its path would be too long."""
    key = hashlib.sha256(repr((target.host, target.config)).encode()).hexdigest()[:16]
    path = runtime_folder() / f"ssh-{key}"
    return path if len(str(path).encode()) <= _MOST_SOCKET_BYTES else None
