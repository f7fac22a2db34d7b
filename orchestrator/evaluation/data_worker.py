"""The child of `data_child`: opens tokenizers and images within its limits.

It gets a line of JSON and bytes, and answers with a line of JSON and bytes, one after another. It
ends when its input ends.
"""

import sys

import numpy as np

from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.errors import FleetError, is_rust_panic, shortened
from fleetrank.foundation.own_process import (
    die_with_parent,
    keep_stdout_for_the_result,
    limit_memory,
    write_all,
)
from fleetrank.orchestrator.compute.child import Reply
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.data_child import Act, Asked
from fleetrank.orchestrator.evaluation.user_data import (
    Encode,
    PictureForm,
    as_input,
    opened_image,
    read_tokenizer,
)


class Answering:
    """Answers requests; it keeps the last tokenizer that it opened."""

    def __init__(self) -> None:
        self._encode: Encode | None = None

    def reply(self, asked: Asked, content: bytes) -> bytes:
        """Answers one request; every error of a library becomes a refusal."""
        try:
            return Reply().encode(self._answer(asked, content))
        except FleetError as error:
            return Reply.refusing(error).encode()
        except BaseException as error:
            if not (isinstance(error, Exception) or is_rust_panic(error)):
                raise
            what = shortened(f"{type(error).__name__}: {error}")
            return Reply.refusing(
                UsageError(f"{asked.where} cannot be read: {what}", "replace the file")
            ).encode()

    def _answer(self, asked: Asked, content: bytes) -> bytes:
        if asked.act is Act.PICTURE:
            form = from_json(PictureForm, asked.details)
            return as_input(opened_image(content, asked.where), form).tobytes()
        if asked.act is Act.OPEN_TOKENIZER:
            facts, self._encode = read_tokenizer(asked.where, content)
            return to_json(facts).encode()
        if self._encode is None:
            raise UsageError("no tokenizer is open", "open one first")
        return np.array(self._encode(content.decode()), dtype=np.int64).tobytes()


def main() -> None:
    """Answers until the input ends."""
    die_with_parent()
    result_fd = keep_stdout_for_the_result()
    limit_memory(int(sys.argv[1]))
    answering = Answering()
    while line := sys.stdin.buffer.readline():
        asked = from_json(Asked, line.decode())
        write_all(result_fd, answering.reply(asked, sys.stdin.buffer.read(asked.n_bytes)))


if __name__ == "__main__":
    main()
