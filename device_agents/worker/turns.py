"""The worker's side of a round: it measures a block when its caller says so, else it sleeps."""

from queue import SimpleQueue

from fleetrank.device_agents.contract.protocol import TURN_MARK, Turn, TurnReport
from fleetrank.foundation.codec import to_json
from fleetrank.foundation.process.own_process import write_all


class Turns:
    """Asks for turns on standard output; the answers arrive on standard input."""

    def __init__(self, result_fd: int) -> None:
        self._result_fd = result_fd
        self._answers: SimpleQueue[bytes] = SimpleQueue()

    def hear(self, received: bytes) -> None:
        """Takes what arrived on standard input; an answer is far shorter than a pipe's part."""
        for answer in received.split():
            self._answers.put(answer)

    def wait(self, report: TurnReport) -> Turn:
        """Reports the last block and sleeps until the next turn; other cells are measured now.

        Raises:
            ValueError: the answer is not a `Turn`.
        """
        write_all(self._result_fd, f"{TURN_MARK}{to_json(report)}\n".encode())
        return Turn(self._answers.get().decode())
