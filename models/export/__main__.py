"""Exports without the command line's libraries, and the exporting child of `process`.

`python -m fleetrank.models.export MODEL FORMAT --out DIR` exports one model. Without arguments it
reads one request from standard input and writes one answer to standard output.
"""

import argparse
import os
import sys
from pathlib import Path

from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.process.own_process import (
    die_with_parent,
    exit_when_input_ends,
    keep_stdout_for_the_result,
    limit_memory,
    read_line,
    write_all,
)
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import find_card, load_cards
from fleetrank.models.errors import ModelError
from fleetrank.models.export.process import ExportAnswer, ExportOrder, Refusal
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
    parser.add_argument("--precision", default="fp32", help="fp32, fp16 or bf16")
    parser.add_argument("--cards", type=Path, help="folder of your own model cards")
    parser.add_argument(
        "--trust", action="store_true", help="allow the code of entry points to run"
    )
    options = parser.parse_args(arguments)
    try:
        request = ExportRequest(
            model=resolve(find_card(load_cards(options.cards), options.model)),
            weights=Weights(seed=options.seed),
            format=Format(options.format),
            precision=options.precision,
            batch=options.batch,
        )
        options.out.mkdir(parents=True, exist_ok=True)
        staged = export_request(request, options.out.resolve(), is_trusted=options.trust)
    except ModelError as error:
        sys.stderr.write(f"{error.message}\n{error.remedy}\n")
        return 2
    sys.stdout.write(to_json(staged) + "\n")
    return 0


def answer() -> int:
    """Handles the request of `models.export.process`; returns 0 if it wrote an answer."""
    die_with_parent()
    result_fd = keep_stdout_for_the_result()
    order = from_json(ExportOrder, read_line(0))
    exit_when_input_ends(0)
    limit_memory(order.memory_limit_bytes)
    try:
        staged = export_request(order.request, order.out_dir, is_trusted=order.is_trusted)
        found = ExportAnswer(staged=staged)
    except ModelError as error:
        found = ExportAnswer(refusal=Refusal.of(error))
    write_all(result_fd, to_json(found).encode())
    return 0


if __name__ == "__main__":
    # Exports run on the processor. But PyTorch saves a GPU's random state while it traces for
    # ONNX, which opens the GPU and would disturb a measurement on it.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.exit(main(sys.argv[1:]) if len(sys.argv) > 1 else answer())
