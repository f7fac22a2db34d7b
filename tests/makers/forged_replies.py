"""A worker, and a board's Python, whose first answers are forged; later ones are real.

`python forged_replies.py FOLDER` is a worker; with the command of a board behind it, it is that
command. Each file of the folder is a forgery that was not sent yet, named after it.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

_SAMPLES = '"samples_ns": [1000000]'
FORGERIES: Mapping[str, tuple[str, str]] = {
    "400 digits": (_SAMPLES, f'"samples_ns": [1{"0" * 400}]'),
    "empty block": (
        '"blocks": []',
        '"blocks": [{"start_ns": 0, "samples": 0, "left_out_ns": []}]',
    ),
    "infinite setting": ('"settings": []', '"settings": [["threads", 1e999]]'),
    "negative latency": (_SAMPLES, '"samples_ns": [-1000000]'),
}
"""By name: what stands in an honest answer, and what is sent in its place."""


def lay_out(folder: Path) -> Path:
    """Makes the folder of all forgeries."""
    folder.mkdir()
    for name in FORGERIES:
        (folder / name).touch()
    return folder


def board_python(folder: Path, script: Path) -> Path:
    """Writes the program that a board has as its Python: it forges answers to `measure`."""
    forger = f'"{sys.executable}" -P "{Path(__file__).resolve()}" "{folder}"'
    script.write_text(
        f'#!/bin/sh\ncase "$*" in\n*/__main__.py\\ measure) exec {forger} "$@";;\n'
        f'*) exec "{sys.executable}" "$@";;\nesac\n'
    )
    script.chmod(0o755)
    return script


def _forged(folder: Path, task_id: str) -> str | None:
    """The next forged answer; `None` when all were sent."""
    from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts
    from fleetrank.foundation.codec import to_plain
    from fleetrank.foundation.vocabulary import Origin, Status

    for path in sorted(folder.iterdir()):
        path.unlink()
        honest = Measurement(
            task_id=task_id, status=Status.OK, origin=Origin.MEASURED, samples_ns=(1_000_000,),
            worker=WorkerFacts(),
        )  # fmt: skip
        text, (there, forged) = json.dumps(to_plain(honest)), FORGERIES[path.name]
        assert there in text
        return text.replace(there, forged)
    return None


def _worker(folder: Path) -> None:
    from fleetrank.device_agents.contract.protocol import decode_request
    from fleetrank.device_agents.contract.task import MeasureTask
    from fleetrank.device_agents.worker import __main__ as worker

    line = worker.read_line(0)
    task = decode_request(line)
    answer = _forged(folder, task.task_id) if isinstance(task, MeasureTask) else None
    if answer is not None:
        print(answer)
        return
    worker.read_line = lambda _: line
    worker.main()


def _board(folder: Path, command: list[str]) -> None:
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).parent))
    from fleetrank.device_agents.board.there import commands
    from fleetrank.device_agents.contract.protocol import decode_request

    honest = commands.measure

    def measure(store, work, purpose, wait_s, line) -> str | None:
        (task,) = map(decode_request, work.requests)
        if (answer := _forged(folder, task.task_id)) is None:
            return honest(store, work, purpose, wait_s, line)
        state = commands.read_state_text()
        states = json.dumps({"before": state, "polled": [], "after": state})
        return f'{{"measurements": [{answer}], "state": {states}}}'

    commands.measure = measure
    commands.main()


if __name__ == "__main__":
    _board(Path(sys.argv[1]), sys.argv[2:]) if sys.argv[2:] else _worker(Path(sys.argv[1]))
