"""Runs one worker process from start to end in all cases; it has no code about measuring."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.failures import End, WorkerEnd
from fleetrank.device_agents.host.conditions import read_oom_kills

WORKER = (sys.executable, "-P", "-m", "fleetrank.device_agents.worker")
"""`-P` removes the working directory from the path: a workspace folder cannot hide a package."""

POLL_S = 0.1
"""Poll interval of the parent: long enough not to disturb, short enough for Ctrl-C."""
MAX_STDOUT_BYTES = 16 * 1024 * 1024
"""Ten thousand samples take 0.2 MB; a larger output is not a result."""
CHUNK_BYTES = 1024 * 1024
"""The largest content of a pipe, so one read takes all remaining output of an ended worker."""
MAX_STDERR_BYTES = 64 * 1024
"""Only the end of the text is kept."""


@dataclass(slots=True)
class _Received:
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)

    def take(self, is_stdout: bool, chunk: bytes) -> None:
        if is_stdout:
            self.stdout += chunk
        else:
            self.stderr += chunk
            del self.stderr[:-MAX_STDERR_BYTES]


def run_worker(
    request: str,
    *,
    timeout_s: float,
    stop_requested: StopRequested = never_stop,
    command: Sequence[str] = WORKER,
    environment: Mapping[str, str] | None = None,
) -> WorkerEnd:
    """Starts a worker, sends it one request, and waits until it and all its children have ended.

    Without an environment it gets that of this process.

    Blocks. The calling thread must not end before this returns: the worker asks the kernel to be
    killed when the thread that started it ends. Since the call blocks, the thread cannot end.
    """
    oom_before = read_oom_kills()
    deadline_ns = time.perf_counter_ns() + int(timeout_s * 1e9)
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=environment,
    )
    received = _Received()
    try:
        _send(process, request)
        end = _wait(process, received, deadline_ns, stop_requested)
    finally:
        _kill_group(process)
        exit_code = process.wait()
        _close(process)
    oom_after = read_oom_kills()
    has_counts = oom_before is not None and oom_after is not None
    return WorkerEnd(
        end=end,
        exit_code=exit_code,
        stdout=received.stdout.decode("utf-8", errors="replace"),
        stderr=received.stderr.decode("utf-8", errors="replace"),
        oom_kills=(oom_after or 0) - (oom_before or 0) if has_counts else None,
        timeout_s=timeout_s,
    )


def _send(process: subprocess.Popen[bytes], request: str) -> None:
    """Writes the request and leaves the pipe open: closing it would end the worker."""
    if process.stdin is None:
        return
    try:
        process.stdin.write(f"{request}\n".encode())
        process.stdin.flush()
    except BrokenPipeError:
        return  # it has already died; its exit code says why


def _wait(
    process: subprocess.Popen[bytes],
    received: _Received,
    deadline_ns: int,
    stop_requested: StopRequested,
) -> End:
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, stream is process.stdout)
        while True:
            has_ended = _has_ended(process)
            _drain(selector, received, 0 if has_ended else POLL_S)
            if has_ended:
                return End.ITSELF
            if len(received.stdout) > MAX_STDOUT_BYTES:
                return End.TOO_MUCH_OUTPUT
            if stop_requested():
                return End.STOP
            if time.perf_counter_ns() >= deadline_ns:
                return End.TIME_LIMIT


def _drain(selector: selectors.BaseSelector, received: _Received, timeout_s: float) -> None:
    """Takes the content of the pipes now, and waits for the first byte of it."""
    if not selector.get_map():
        time.sleep(min(timeout_s, 0.005))  # both closed: the process is about to be reaped
        return
    for key, _events in selector.select(timeout_s):
        chunk = _read(key.fd)  # one chunk: a writer that never pauses must not block the parent
        if chunk:
            received.take(key.data, chunk)
        elif chunk is not None:
            selector.unregister(key.fileobj)


def _read(file_descriptor: int) -> bytes | None:
    """A chunk; empty at the end of the pipe, `None` if nothing is available now."""
    try:
        return os.read(file_descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return None


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Checks without reaping: the group's number stays reserved until the group is killed."""
    found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found is not None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    if process.stdin is not None:
        try:
            process.stdin.close()
        except BrokenPipeError:
            return  # output that was never read has no use
