"""A computing child of the server: a line of JSON in, a line and a body out, one job at a time.

Started as `python -P -m orchestrator.server.worker RESULTS [MEMORY_LIMIT_BYTES]`. It ends when its
input ends, also in the middle of a job.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from analysis.errors import AnalysisError
from analysis.part_files import damage_error, damaged_part_of
from device_agents.isolation import limit_memory
from orchestrator.errors import OrchestratorError
from orchestrator.server.jobs import FORGET, Job, Result


def main() -> None:
    """Answers until the input ends."""
    results = Path(sys.argv[1])
    limit_memory(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    # What a library prints must not run into an answer.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Imported under the limit, which counts what the libraries take.
    from orchestrator.server.answering import Answering

    answering = Answering(results)
    for line in _lines():
        if line == FORGET:
            answering.forget()
        else:
            _write(output, *_answer(answering.answer, line, results))


def _lines() -> Iterator[bytes]:
    """Jobs as they come; the end of the input ends the process even while a job is computed."""
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, name="stdin-reader", daemon=True).start()
    while True:
        yield waiting.get()


def _answer(
    answer: Callable[[Job], Result], line: bytes, results: Path
) -> tuple[dict[str, object], bytes]:
    """The first line of the reply, and its body; every error is a reply, too."""
    try:
        result = answer(Job.parse(line))
    except (AnalysisError, OrchestratorError) as error:
        return _refusal(type(error).__name__, error.message, error.remedy), b""
    except MemoryError:
        return _refusal("QueryError", "it needs more memory than it may have", "narrow it"), b""
    except Exception as error:
        if (damaged := damaged_part_of(results)) is not None:
            found = damage_error(damaged)
            return _refusal(type(found).__name__, found.message, found.remedy), b""
        message = f"{type(error).__name__}: {error}"
        return _refusal("Defect", message, "this is a defect of fleetrank"), b""
    return {"media_type": result.media_type, "size_bytes": len(result.body)}, result.body


def _refusal(kind: str, message: str, remedy: str) -> dict[str, object]:
    return {"error": kind, "message": message, "remedy": remedy, "size_bytes": 0}


def _write(output: BinaryIO, head: dict[str, object], body: bytes) -> None:
    output.write(json.dumps(head).encode() + b"\n" + body)
    output.flush()


if __name__ == "__main__":
    main()
