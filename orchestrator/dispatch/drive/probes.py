"""Probes devices that were set aside, in threads beside the control loop."""

import queue
import threading
from collections.abc import Callable, Sequence

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.foundation.vocabulary import ErrorKind

Answer = tuple[str, DeviceFacts | Failure]


class Probes:
    """At most one probe per device is in flight: a phone that hangs takes half a minute to fail."""

    def __init__(self, ask: Callable[[str], DeviceFacts | Failure]) -> None:
        """`ask` probes one device and blocks; it may be called from any thread."""
        self._ask = ask
        self._asked: set[str] = set()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def start(self, device: str) -> None:
        """Starts a probe of a device, unless an earlier probe is still in flight."""
        if device in self._asked:
            return
        self._asked.add(device)
        # Daemon threads: the end of a sweep does not wait for a phone that hangs.
        threading.Thread(target=self._work, args=(device,), daemon=True).start()

    def answers(self) -> Sequence[Answer]:
        """Returns the answers since the last call; does not block."""
        arrived: list[Answer] = []
        while not self._answers.empty():
            device, answer = self._answers.get()
            self._asked.discard(device)
            arrived.append((device, answer))
        return arrived

    def _work(self, device: str) -> None:
        try:
            answer = self._ask(device)
        except Exception as error:
            answer = Failure(
                kind=ErrorKind.INTERNAL,
                message=f"{type(error).__name__}: {error}",
                remedy="run with --inline --debug to see where",
                is_transient=True,
            )
        self._answers.put((device, answer))
