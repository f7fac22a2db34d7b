"""The parent's side of a child that opens what its library can only parse in native code.

A tokenizer can turn one character into billions, and a damaged image can crash its library. The
child has a limit of memory and of time, and the parent reads the files.
"""

import sys
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.device_agents.host.worker_process import default_limit_bytes
from fleetrank.foundation.codec import to_json
from fleetrank.foundation.supervised_child import End, SupervisedChild, exit_name
from fleetrank.orchestrator.compute.child import ask as send
from fleetrank.orchestrator.errors import UsageError

MEMORY_BYTES = 4 << 30
"""A text of 30 MB in one document takes 2 GB while it is encoded; 100 million pixels take 1 GB."""
LARGEST_FILE_BYTES = 256 << 20
"""Of one tokenizer or image: the largest published tokenizer.json has 33 MB."""
_START_S = 60.0
"""Importing the libraries takes 0.3 s; on a busy host with a cold disk, many times that."""
_BYTES_PER_S = 100_000
"""The slowest tokenizers read ten times that."""
_MAX_REPLY_BYTES = 1 << 30
"""Eight bytes for each token of a text of 128 million tokens."""


class Act(StrEnum):
    """What the child does with the bytes that it gets."""

    OPEN_TOKENIZER = "open_tokenizer"
    ENCODE = "encode"
    PICTURE = "picture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request; the bytes of a file or a text follow it.

    Attributes:
        where: what the bytes are, for messages: the path of a file.
        n_bytes: how many follow.
        details: JSON text of further facts.
    """

    act: Act
    where: str
    n_bytes: int
    details: str = ""


class DataChild:
    """One child; it starts with the first request, and its owner calls `close`."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._limit_bytes = min(memory_bytes, default_limit_bytes())
        self._child: SupervisedChild | None = None

    def ask(self, act: Act, where: str, content: bytes, details: str = "") -> bytes:
        """Sends a request, and waits for the answer.

        Args:
            act: what to do.
            where: what the content is, for messages.
            content: of a file, or a text.
            details: JSON text of further facts.

        Raises:
            UsageError: the content is not valid, or beyond the limits of the child.
        """
        limit_s = _START_S + len(content) / _BYTES_PER_S
        if self._child is None:
            # -P: a workspace folder cannot shadow a package.
            module = ("-P", "-m", "fleetrank.orchestrator.evaluation.user_data")
            self._child = SupervisedChild([sys.executable, *module, str(self._limit_bytes)])
        asked = Asked(act=act, where=where, n_bytes=len(content), details=details)
        request = f"{to_json(asked)}\n".encode() + content
        end, answer = send(self._child, request, timeout_s=limit_s, max_bytes=_MAX_REPLY_BYTES)
        if answer is None:
            raise self._no_answer(where, end, limit_s)
        reply, body = answer
        if reply.refusal is not None:
            _, message, remedy = reply.refusal
            raise UsageError(message, remedy)
        return body

    def close(self) -> None:
        """Ends the process."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _no_answer(self, where: str, end: End, limit_s: float) -> UsageError:
        code = 0 if self._child is None else self._child.end()
        self._child = None
        if end is End.TIME_LIMIT:
            return UsageError(f"reading {where} took longer than {limit_s:.0f} s", _REMEDY)
        if end is End.TOO_MUCH_OUTPUT:
            return UsageError(f"{where} becomes more than {_MAX_REPLY_BYTES >> 20} MiB", _REMEDY)
        return UsageError(
            f"{where} ended the process that read it ({exit_name(code)}); it may need more than "
            f"its limit of {self._limit_bytes >> 20} MiB",
            _REMEDY,
        )


_REMEDY = "replace the file, or divide the text into shorter documents"
