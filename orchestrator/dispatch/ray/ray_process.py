"""The side of a sweep that needs Ray, in a separate process, and the executor that calls it.

Ray ends the process that uses it, in C++ and with code 1, when its head (`gcs_server`) has not
answered for 60 s. So a sweep talks to Ray through a child, survives this, and can say what to do.
"""

import contextlib
import logging
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.foundation.process.supervised_child import SupervisedChild, exit_name
from fleetrank.orchestrator.dispatch.ray.ray_executor import PlacedDevice
from fleetrank.orchestrator.dispatch.ray.ray_hosts import Joined
from fleetrank.orchestrator.errors import RayLostError
from fleetrank.orchestrator.identity.cells import DeviceSpec

_log = logging.getLogger(__name__)

_LEAVE_S = 10.0
"""Ray ends in 1 s, on a busy host in several; without its head it would take a minute."""


_Call = tuple[Any, ...]
"""The name of a method of `ray_program`, and its arguments."""


class RayProcess:
    """A child that is connected to Ray for the block; safe to use from any thread.

    Every method raises `RayLostError` when the child has ended. What Ray's native code has
    written is then in a file below the temporary folder.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._n_sent = 0
        self._is_leaving = False
        self._lost: RayLostError | None = None

    def __enter__(self) -> Self:
        # It has no name, so a killed process leaves none behind.
        self._native_output = tempfile.TemporaryFile()
        ours, theirs = socket.socketpair()
        level = str(logging.getLogger().getEffectiveLevel())
        # -P: a workspace folder cannot shadow a package.
        module = ("-P", "-m", "fleetrank.orchestrator.dispatch.ray.ray_program")
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
                self._start_calls(("leave",)).result(_LEAVE_S)
        except Exception as error:
            # What the sweep has measured is safe, so the sweep has not failed.
            _log.info("Ray did not end as it should: %r", error)
        finally:
            self._child.end()
            self._reader.join()
            self._line.close()
            self._native_output.close()

    def start(self, spool: Path) -> Joined:
        """Starts a Ray on this host; raises as `local_ray`."""
        joined: Joined = self._call(("start", str(spool)))
        return joined

    def connect(self, address: str) -> Joined:
        """Connects to a cluster; raises as `cluster_ray`."""
        joined: Joined = self._call(("connect", address))
        return joined

    def why_unsupported(self, host: str, device: DeviceSpec, execution: Execution) -> str | None:
        """Returns why a device cannot run this; `None` if it can, or if its host is unavailable."""
        reason: str | None = self._call(("why_unsupported", host, device, execution))
        return reason

    def _call(self, *calls: _Call) -> Any:
        """Makes calls in this order, and waits for the result of the last one."""
        return self._start_calls(*calls).result()

    def _start_calls(self, *calls: _Call) -> Future[Any]:
        answer: Future[Any] = Future()
        with self._lock:
            if self._lost is not None:
                raise self._lost
            self._n_sent += 1
            self._waiting[self._n_sent] = answer
            with contextlib.suppress(OSError):  # it has ended: the reader says so
                self._line.send((self._n_sent, calls))
        return answer

    def _read(self) -> None:
        """Gives each answer to its call, until the child has ended."""
        try:
            while True:
                number, result, failure = self._line.recv()
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
            f"the process that talks to Ray has ended ({ending}); Ray ends it when its head "
            "(gcs_server) does not answer any more",
            f"{kept}on a cluster start the head again",
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


class RemoteExecutor:
    """The executor of a sweep in a `RayProcess`; what needs no answer goes with the next poll."""

    def __init__(
        self,
        process: RayProcess,
        sweep_id: str,
        devices: Sequence[PlacedDevice],
        host_timeout_s: float,
    ) -> None:
        self._process = process
        self._open = (sweep_id, tuple(devices), host_timeout_s)
        self._unsent: list[_Call] = []

    def __enter__(self) -> Self:
        self._call("open", *self._open)
        return self

    def __exit__(self, *exc_info: object) -> None:
        # Without Ray nothing is lost: hosts offer again what was not acknowledged.
        with contextlib.suppress(RayLostError):
            self._call("executor.__exit__", None, None, None)

    def facts(self) -> Mapping[str, DeviceFacts]:
        """Facts of each device, probed when entering; a device that did not answer is missing."""
        found: Mapping[str, DeviceFacts] = self._call("executor.facts")
        return found

    def in_flight(self) -> Mapping[str, str]:
        """The sweep's tasks in flight, as a mapping from task id to device."""
        found: Mapping[str, str] = self._call("executor.in_flight")
        return found

    def submit(self, device: str, task: MeasureTask) -> None:
        """Gives a task to the device's host; the next poll sends it."""
        self._unsent.append(("executor.submit", device, task))

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        """Waits for the first measurement and returns all that have arrived."""
        arrived: Sequence[Measurement] = self._call("executor.poll", timeout_s)
        return arrived

    def acknowledge(self, task_ids: Sequence[str]) -> None:
        """Acknowledges stored measurements with the next poll of each host."""
        self._unsent.append(("executor.acknowledge", tuple(task_ids)))

    def probe(self, device: str) -> DeviceFacts | Failure:
        """Probes a device; blocks. Safe to call from any thread."""
        answer: DeviceFacts | Failure = self._process._call(("executor.probe", device))
        return answer

    def finish_rounds(self) -> None:
        """Ends running rounds after their current blocks."""
        self._call("executor.finish_rounds")

    def interrupt(self) -> None:
        """Ends running tasks now."""
        self._call("executor.interrupt")

    def _call(self, name: str, *arguments: object) -> Any:
        calls, self._unsent = (*self._unsent, (name, *arguments)), []
        return self._process._call(*calls)
