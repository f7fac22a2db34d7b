"""Calls the hosts of Ray through a separate process.

Ray ends the process that uses it, in C++ and with code 1, when its head (`gcs_server`) has not
answered for 60 s. So a sweep talks to Ray through a child, survives this, and can say what to do.
"""

import contextlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.hosts.messages import DeviceSpec
from fleetrank.device_agents.hosts.reach import HostLink
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.supervised_child import SupervisedChild, exit_name
from fleetrank.orchestrator.dispatch.local_ray import local_ray
from fleetrank.orchestrator.dispatch.ray_cluster import cluster_ray
from fleetrank.orchestrator.dispatch.ray_hosts import Joined, RayHosts
from fleetrank.orchestrator.errors import RayLostError

_log = logging.getLogger(__name__)

_LEAVE_S = 10.0
"""Ray ends in 1 s, on a busy host in several; without its head it would take a minute."""
_ASK_S = 60.0
"""A host that swaps takes long to answer."""
NEWS = 0
"""Number of a message that answers no call: the hosts that answer now."""


class RayProcess:
    """A `Reach` through a child that is connected to Ray for the block.

    Safe to use from any thread.

    Every method raises `RayLostError` when the child has ended. What Ray's native code has
    written is then in a file below the temporary folder.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._n_sent = 0
        self._is_leaving = False
        self._lost: RayLostError | None = None
        self._hosts: Mapping[str, HostLink] = {}

    def __enter__(self) -> Self:
        # It has no name, so a killed process leaves none behind.
        self._native_output = tempfile.TemporaryFile()
        ours, theirs = socket.socketpair()
        level = str(logging.getLogger().getEffectiveLevel())
        # -P: a workspace folder cannot shadow a package.
        module = ("-P", "-m", "fleetrank.orchestrator.dispatch.ray_process")
        with theirs:
            line, output = theirs.fileno(), self._native_output.fileno()
            self._child = SupervisedChild(
                [sys.executable, *module, str(line), str(output), level],
                stderr=None,
                pass_fds=(line, output),
            )
        self._line = Connection(ours.detach())
        self._reader = threading.Thread(target=self._read, name="ray-answers", daemon=True)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        """Leaves Ray; a child that does not leave in time is killed with all that it started."""
        self._is_leaving = True
        try:
            # Ctrl-C does not wait for a Ray that is starting.
            if kind is None or issubclass(kind, Exception):
                self._ask("leave").result(_LEAVE_S)
        except Exception as error:
            # What the sweep has measured is safe, so the sweep has not failed.
            _log.info("Ray did not end as it should: %r", error)
        finally:
            self._child.end()
            self._reader.join()
            self._line.close()
            self._native_output.close()

    def start(self, spool: Path, *, silent_s: float = inf) -> Joined:
        """Starts a Ray on this host; raises as `local_ray`; `silent_s` as of `RayHosts`."""
        joined: Joined = self._ask("start", str(spool), silent_s).result()
        return joined

    def connect(self, address: str, *, silent_s: float = inf) -> Joined:
        """Connects to a cluster; raises as `cluster_ray`; `silent_s` as of `RayHosts`."""
        joined: Joined = self._ask("connect", address, silent_s).result()
        return joined

    def hosts(self) -> Mapping[str, HostLink]:
        """The hosts that answer now, by name."""
        return self._hosts

    def call(self, host: str, method: str, *arguments: object) -> Future[Any]:
        """Calls a method of a host."""
        return self._ask("call", host, method, *arguments)

    def send_files(self, host: str, files: Sequence[Path]) -> Future[None]:
        """Sends files that a host lacks."""
        return self._ask("send_files", host, files)

    def restart(self, host: str, *, is_lost: bool) -> None:
        """Restarts the process of a host; afterwards one that is lost is not in `hosts`."""
        self._ask("restart", host, is_lost).result()

    def why_unsupported(self, host: str, device: DeviceSpec, execution: Execution) -> str | None:
        """Returns why a device cannot run this; `None` if it can, or if its host is unavailable."""
        if host not in self._hosts:
            return None
        reason: str | None
        reason = self.call(host, "why_unsupported", device, execution).result(_ASK_S)
        return reason

    def _ask(self, name: str, *arguments: object) -> Future[Any]:
        answer: Future[Any] = Future()
        with self._lock:
            if self._lost is not None:
                raise self._lost
            self._n_sent += 1
            number = self._n_sent
            self._waiting[number] = answer
        # Another lock than the reader's: who sends may wait until the child has sent its answers.
        with self._sending, contextlib.suppress(OSError):  # it has ended: the reader says so
            self._line.send((number, name, arguments))
        return answer

    def _read(self) -> None:
        """Gives each answer to its call, until the child has ended."""
        try:
            while True:
                number, result, failure = self._line.recv()
                if number == NEWS:
                    self._hosts = result
                    continue
                with self._lock:
                    answer = self._waiting.pop(number)
                if failure is None:
                    answer.set_result(result)
                else:
                    answer.set_exception(failure)
        except (EOFError, OSError):
            pass
        finally:
            self._fail_waiting()

    def _fail_waiting(self) -> None:
        ending = exit_name(self._child.end())
        kept = "" if self._is_leaving else f"read {self._keep_native_output()}, "
        lost = RayLostError(
            f"the process that talks to Ray has ended ({ending}); Ray ends it when the raylet of "
            "this host has ended, or when its head (gcs_server) does not answer any more",
            f"{kept}on a cluster start what `ray status` misses again, here or on the head",
        )
        with self._lock:
            self._lost, unanswered = lost, list(self._waiting.values())
        for answer in unanswered:
            answer.set_exception(lost)

    def _keep_native_output(self) -> str:
        self._native_output.seek(0)
        with tempfile.NamedTemporaryFile(
            prefix="fleetrank-ray.", suffix=".log", delete=False
        ) as file:
            shutil.copyfileobj(self._native_output, file)
        return file.name


# The process that talks to Ray; its parent, above, starts this module and sends it calls.
#
# Its arguments are two descriptors, of the line to its parent and of the file for the output of
# native code, and the level of the log. It ends when the line ends.


class _Program:
    """Carries out the calls of the parent by name; methods that it lacks are those of `RayHosts`.

    Each call is answered with its number; a call that returns a `Future`, when that is done.
    """

    def __init__(self, line: Connection) -> None:
        self._line = line
        self._sending = threading.Lock()
        self._opened = ExitStack()
        self._hosts: RayHosts

    def carry_out(self, number: int, name: str, arguments: Sequence[object]) -> None:
        """Carries out one call."""
        try:
            result = getattr(self if hasattr(self, name) else self._hosts, name)(*arguments)
        except Exception as error:
            self._answer(number, None, error)
            return
        if isinstance(result, Future):
            result.add_done_callback(lambda done: self._answer_done(number, done))
        else:
            self._answer(number, result, None)

    def start(self, spool: str, silent_s: float) -> Joined:
        """Starts a Ray for one sweep."""
        self._opened.enter_context(local_ray())
        return self._join(spool, silent_s)

    def connect(self, address: str, silent_s: float) -> Joined:
        """Connects to a cluster."""
        dashboard = self._opened.enter_context(cluster_ray(address))
        return replace(self._join(None, silent_s), dashboard=dashboard)

    def leave(self) -> None:
        """Leaves Ray; ends one that `start` started."""
        self._opened.close()

    def restart(self, host: str, is_lost: bool) -> None:
        """Restarts the process of a host."""
        self._hosts.restart(host, is_lost=is_lost)

    def _join(self, spool: str | None, silent_s: float) -> Joined:
        hosts = RayHosts(spool, self._tell, silent_s=silent_s)
        self._hosts = self._opened.enter_context(hosts)
        return self._hosts.settle()

    def _tell(self, hosts: Mapping[str, HostLink]) -> None:
        self._send((NEWS, hosts, None))

    def _answer_done(self, number: int, done: Future[Any]) -> None:
        error = done.exception()
        self._answer(number, None if error else done.result(), error)

    def _answer(self, number: int, result: object, error: BaseException | None) -> None:
        if error is not None:
            # An error of Ray can only be read where Ray is loaded.
            is_ours = isinstance(error, FleetError)
            trace = "".join(traceback.format_exception(error))
            error = error if is_ours else RuntimeError(f"{type(error).__name__}: {error}")
            error.add_note(trace)
        self._send((number, result, error))

    def _send(self, message: tuple[int, object, BaseException | None]) -> None:
        with self._sending:
            self._line.send(message)


def _keep_native_output(file: int) -> None:
    """Sends what native code writes to this file; the log stays on standard error."""
    shown = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    logging.basicConfig(
        level=int(sys.argv[3]), stream=shown, format="%(levelname)s %(name)s: %(message)s"
    )
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def main() -> None:
    """Carries out calls until the line ends."""
    os.set_inheritable(int(sys.argv[1]), False)
    line = Connection(int(sys.argv[1]))
    _keep_native_output(int(sys.argv[2]))
    program = _Program(line)
    while True:
        try:
            number, name, arguments = line.recv()
        except EOFError:
            os._exit(0)
        program.carry_out(number, name, arguments)


if __name__ == "__main__":
    main()
