"""Asks devices that were set aside whether they are well, beside the loop that runs the others."""

import queue
import threading
from collections.abc import Callable, Sequence

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.vocabulary import ErrorKind

Answer = tuple[str, DeviceFacts | Failure]


class Probes:
    """One question per device at a time: a phone that hangs takes half a minute to be given up."""

    def __init__(self, ask: Callable[[str], DeviceFacts | Failure]) -> None:
        """Takes what asks one device and waits, from any thread."""
        self._ask = ask
        self._asked: set[str] = set()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def start(self, device: str) -> None:
        """Asks a device; nothing happens while it has not answered an earlier question."""
        if device in self._asked:
            return
        self._asked.add(device)
        # Daemons: a sweep that ends waits for no phone that hangs.
        threading.Thread(target=self._work, args=(device,), daemon=True).start()

    def answers(self) -> Sequence[Answer]:
        """What has come back since it was asked last; returns at once."""
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
