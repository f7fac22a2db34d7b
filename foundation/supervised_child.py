"""One child process, from start to end in all cases; it ends with all processes that it started.

A child writes its result to standard output and its messages to standard error. Its standard input
stays open until the end: a child that reads the end of its input knows that its parent is gone.
"""

import contextlib
import errno
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fleetrank.foundation import reaper
from fleetrank.foundation.vocabulary import Words

POLL_S = 0.1
"""Poll interval of the parent: long enough not to disturb, short enough for Ctrl-C."""
MAX_RESULT_BYTES = 16 * 1024 * 1024
"""Ten thousand samples take 0.2 MB; a larger output is not a result."""
CHUNK_BYTES = 1024 * 1024
"""The largest content of a pipe, so one read takes all remaining output of an ended child."""
MAX_STDERR_BYTES = 64 * 1024
"""Only the end of the text is kept; what is read has the bound of the result."""
_REAP_NS = 10_000_000_000
"""Killing all that a child left takes milliseconds; longer only if the processes multiply."""
_REAP_POLL_S = 0.002


class End(Words):
    """What ended the wait for a child."""

    ITSELF = "itself"
    TIME_LIMIT = "time_limit"
    STOP = "stop"
    TOO_MUCH_OUTPUT = "too_much_output"
    COMPLETE = "complete"
    """The awaited output has arrived; the child still runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """What is known about a child after its end.

    Attributes:
        exit_code: negative for a signal.
        stdout: all standard output; it is the result if the child succeeded.
        stderr: the end of its standard error.
    """

    end: End
    exit_code: int
    stdout: str
    stderr: str
    timeout_s: float


def _never() -> bool:
    return False


class SupervisedChild:
    """A running child; its owner calls `end` in all cases. One thread uses it, any may `kill` it.

    A separate process, the `reaper`, leads its process group and ends whatever it leaves behind.
    The reaper's process id is collected last, so the number of the group stays reserved until the
    group is killed.

    Attributes:
        stdout: standard output that `wait` has read; the owner may clear it.
        stderr: the end of standard error, if it is a pipe.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.PIPE,
        stderr: int | None = subprocess.PIPE,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Starts it.

        Args:
            command: program and arguments.
            environment: `None` means that of this process.
            stdin: as of `subprocess.Popen`.
            stderr: as of `subprocess.Popen`; `None` means that of this process.
            pass_fds: further descriptors that it inherits.

        Raises:
            OSError: the process cannot be started.
        """
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        line, self._line = os.pipe()  # its end here is not inherited: it closes with this process
        try:
            self._process = subprocess.Popen(
                reaper.command_of(command, line),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                pass_fds=(line, *pass_fds),
                env=environment,
            )
        except OSError:
            os.close(self._line)
            raise
        finally:
            os.close(line)
        self.stdout, self.stderr = bytearray(), bytearray()
        self._stderr_bytes = 0
        self._exit_code: int | None = None
        self._ending = threading.Lock()
        self._selector = selectors.DefaultSelector()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(
                    stream, selectors.EVENT_READ, stream is self._process.stdout
                )

    @property
    def pid(self) -> int:
        """The process id of the program; that of its reaper if the program has ended."""
        return next(iter(reaper.children(self._process.pid)), self._process.pid)

    def send(self, data: bytes) -> None:
        """Writes to its standard input, which stays open; a child that has ended reads nothing."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # its exit code says why it ended
                self._process.stdin.write(data)
                self._process.stdin.flush()

    def has_ended(self) -> bool:
        """Whether it has ended; does not collect its process id."""
        if self._exit_code is not None:
            return True
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, how) is not None

    def wait(
        self,
        *,
        deadline_ns: int,
        max_bytes: int = MAX_RESULT_BYTES,
        stop_requested: Callable[[], bool] = _never,
        is_complete: Callable[[bytearray], bool] = lambda _received: False,
    ) -> End:
        """Reads its output until the output is complete, the child ends, or a limit is reached.

        Args:
            deadline_ns: time limit, on the clock of `time.perf_counter_ns`.
            max_bytes: limit of the standard output in `stdout`, and of all standard error.
            stop_requested: called about ten times a second.
            is_complete: whether `stdout` contains what the caller waits for.
        """
        while True:
            has_ended = self.has_ended()
            left_s = max(0.0, (deadline_ns - time.perf_counter_ns()) / 1e9)
            self._drain(0 if has_ended else min(POLL_S, left_s))
            if is_complete(self.stdout):
                return End.COMPLETE
            if has_ended:
                return End.ITSELF
            if max(len(self.stdout), self._stderr_bytes) > max_bytes:
                return End.TOO_MUCH_OUTPUT
            if stop_requested():
                return End.STOP
            if time.perf_counter_ns() >= deadline_ns:
                return End.TIME_LIMIT

    def kill(self) -> None:
        """Kills it with all that it started; `end` must still be called."""
        with self._ending:
            if self._exit_code is None:
                self._kill_all()

    def end(self) -> int:
        """Kills it with all that it started, and collects it; returns the exit code."""
        with self._ending:
            if self._exit_code is None:
                self._kill_all()
                self._exit_code = self._process.wait()
                self._close()
        return self._exit_code

    def ended(self, end: End, timeout_s: float) -> ChildEnd:
        """Ends it as `end` does; says what is known about it then."""
        return ChildEnd(
            end=end,
            exit_code=self.end(),
            stdout=self.stdout.decode("utf-8", errors="replace"),
            stderr=self.stderr.decode("utf-8", errors="replace"),
            timeout_s=timeout_s,
        )

    def _kill_all(self) -> None:
        os.kill(self._process.pid, signal.SIGTERM)
        end_ns = time.perf_counter_ns() + _REAP_NS
        while not self.has_ended() and time.perf_counter_ns() < end_ns:
            time.sleep(_REAP_POLL_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _close(self) -> None:
        self._selector.close()
        os.close(self._line)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # input that was never read has no use
                    stream.close()

    def _drain(self, timeout_s: float) -> None:
        """Takes the content of the pipes now, and waits for the first byte of it."""
        if not self._selector.get_map():
            time.sleep(min(timeout_s, 0.005))  # all closed: the child is about to end
            return
        for key, _events in self._selector.select(timeout_s):
            chunk = _read(key.fd)  # one chunk: a writer that never pauses must not block the parent
            if chunk and key.data:
                self.stdout += chunk
            elif chunk:
                self._stderr_bytes += len(chunk)
                self.stderr += chunk
                del self.stderr[:-MAX_STDERR_BYTES]
            elif chunk is not None:
                self._selector.unregister(key.fileobj)


def run_child(
    command: Sequence[str],
    request: str | None,
    *,
    timeout_s: float,
    stop_requested: Callable[[], bool] = _never,
    environment: Mapping[str, str] | None = None,
) -> ChildEnd:
    """Starts a child, sends it one line, and waits until it and all that it started have ended.

    Blocks.

    Args:
        command: program and arguments.
        request: one line of text; the line end is added. Its input stays open then, and is empty
            with `None`.
        timeout_s: the child is killed after this time.
        stop_requested: called about ten times a second; the child is killed if it says so.
        environment: `None` means that of this process.

    Raises:
        OSError: the process cannot be started.
    """
    deadline_ns = time.perf_counter_ns() + int(timeout_s * 1e9)
    stdin = subprocess.DEVNULL if request is None else subprocess.PIPE
    child = SupervisedChild(command, environment=environment, stdin=stdin)
    try:
        child.send(f"{request}\n".encode())
        end = child.wait(deadline_ns=deadline_ns, stop_requested=stop_requested)
        return child.ended(end, timeout_s)
    finally:
        child.end()


def exit_name(exit_code: int) -> str:
    """How a process ended, in words: the name of the signal, or `exit code 3`."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def _read(file_descriptor: int) -> bytes | None:
    """A chunk; empty at the end of the pipe, `None` if nothing is available now."""
    try:
        return os.read(file_descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return None
