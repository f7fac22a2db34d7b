"""A worker, and a board's Python, whose first answers are forged; later ones are real.

`python forged_replies.py FOLDER` is a worker; with a board's Python and a command of it behind, it
is that command. Each file of the folder is a forgery that was not sent yet, named after it.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

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
    """Writes the program that a board has as its Python: its host forges answers."""
    forger = f'"{sys.executable}" -P "{Path(__file__).resolve()}" "{folder}" "$0"'
    script.write_text(
        f'#!/bin/sh\ncase "$*" in\n*/__main__.py\\ host|*/__main__.py\\ join) '
        f'exec {forger} "$@";;\n*) exec "{sys.executable}" "$@";;\nesac\n'
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


def _board(folder: Path, python: str, command: list[str]) -> None:
    if not Path(command[0]).exists():  # the code is sent after this failed
        os.execv(sys.executable, [sys.executable, *command])
    # The host is started with the same program.
    sys.argv, sys.executable = command, python
    sys.path.insert(0, str(Path(command[0]).parent))
    from fleetrank.device_agents.board.there import host_process, join

    if command[-1] == "join":
        sys.exit(join.main())

    def dumps(reply: Mapping[str, object]) -> str:
        answer = reply.get("answer")
        if not isinstance(answer, dict) or not answer.get("measurements"):
            return json.dumps(reply)
        texts = [
            _forged(folder, one["task_id"]) or json.dumps(one) for one in answer["measurements"]
        ]
        text = json.dumps({**reply, "answer": {**answer, "measurements": "HERE"}})
        return text.replace('"HERE"', f"[{', '.join(texts)}]")

    host_process.json = SimpleNamespace(loads=json.loads, dumps=dumps)
    host_process.main()


if __name__ == "__main__":
    _worker(Path(sys.argv[1])) if len(sys.argv) == 2 else _board(
        Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    )
