"""Exports without the command line's libraries, and the exporting child of `process`.

`python -m fleetrank.models.export MODEL FORMAT --out DIR` exports one model. Without arguments it
reads requests from standard input and writes an answer to each to standard output.
"""

import argparse
import gc
import os
import queue
import sys
import tempfile
from pathlib import Path

from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.own_process import (
    die_with_parent,
    exit_when_input_ends,
    keep_stdout_for_the_result,
    limit_memory,
    read_line,
    write_all,
)
from fleetrank.foundation.vocabulary import Format
from fleetrank.foundation.workload import IMAGE, Workload
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.errors import ModelError, UntrustedError
from fleetrank.models.export.process import ExportAnswer, ExportOrder
from fleetrank.models.export.request import export_request


def main(arguments: list[str]) -> int:
    """Exports one model; needs only torch and the libraries of the model and format."""
    parser = argparse.ArgumentParser(
        prog="python -m fleetrank.models.export", description=main.__doc__
    )
    parser.add_argument("model")
    parser.add_argument("format", choices=[str(format_) for format_ in Format])
    parser.add_argument("--out", type=Path, required=True, help="folder for the file")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the seeded weights")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--precision", default="fp32", help="fp32, fp16, bf16, int8 or int4")
    parser.add_argument(
        "--workload", type=_workload, default=IMAGE, help="of a language model: prefill@128, ..."
    )
    parser.add_argument("--cards", type=Path, help="folder of your own model cards")
    parser.add_argument(
        "--trust", action="store_true", help="allow the code of entry points to run"
    )
    options = parser.parse_args(arguments)
    try:
        request = ExportRequest(
            model=resolve(load_cards(options.cards).find(options.model)),
            weights=Weights(seed=options.seed),
            format=Format(options.format),
            precision=options.precision,
            batch=options.batch,
            workload=options.workload,
        )
        options.out.mkdir(parents=True, exist_ok=True)
        staged = export_request(request, options.out.resolve(), is_trusted=options.trust)
    except ModelError as error:
        sys.stderr.write(f"{error.message}\n{error.remedy}\n")
        return 2
    sys.stdout.write(to_json(staged) + "\n")
    return 0


def _workload(text: str) -> Workload:
    try:
        return Workload.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def answer_all() -> None:
    """Handles the requests of `models.export.process` until its input ends, which ends it."""
    die_with_parent()
    result_fd = keep_stdout_for_the_result()
    first = read_line(0)
    lines = _Lines()
    exit_when_input_ends(0, lines.hear)
    write_all(result_fd, _answer(first))
    while True:
        gc.collect()  # networks hold cycles, and the next one can be as large
        write_all(result_fd, _answer(lines.complete.get()))


class _Lines:
    """Puts parts of the input together; a request is one line."""

    def __init__(self) -> None:
        self.complete: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._part = b""

    def hear(self, received: bytes) -> None:
        *whole, self._part = (self._part + received).split(b"\n")
        for line in whole:
            self.complete.put(line.decode("utf-8", errors="replace"))


def _answer(line: str) -> bytes:
    order = from_json(ExportOrder, line)
    limit_memory(order.memory_limit_bytes)
    # This process is killed at its end, so TensorFlow does not remove its temporary files itself.
    tempfile.tempdir = str(order.out_dir)
    try:
        staged = export_request(order.request, order.out_dir, is_trusted=order.is_trusted)
        found = ExportAnswer(staged=staged)
    except ModelError as error:
        found = ExportAnswer(
            message=error.message,
            remedy=error.remedy,
            lacks_trust=isinstance(error, UntrustedError),
        )
    return f"{to_json(found)}\n".encode()


if __name__ == "__main__":
    # Exports run on the processor. But PyTorch saves a GPU's random state while it traces for
    # ONNX, which opens the GPU and would disturb a measurement on it.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if len(sys.argv) > 1:
        sys.exit(main(sys.argv[1:]))
    answer_all()
