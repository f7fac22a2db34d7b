"""What docs/cluster.md says about the server to type."""

import re
import shlex
from pathlib import Path

import httpx
import pytest

from fleetrank.foundation.listening import open_listener

TEXT = (Path(__file__).parents[3] / "docs" / "cluster.md").read_text(encoding="utf-8")
COMMANDS = [
    line for line in TEXT.replace("\\\n", " ").splitlines() if line.strip().startswith("curl ")
]


def test_there_are_examples() -> None:
    assert len(COMMANDS) == 6


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_is_answered_with_rows(client: httpx.Client, command: str) -> None:
    words = shlex.split(command)
    path = next(word for word in words if word.startswith("http")).partition(":8765")[2]
    parameters = dict(word.split("=", 1) for word in words if word.startswith("sql="))
    answer = client.get(path, params=parameters or None)
    assert answer.status_code == 200
    assert len(answer.content) > 100


def test_every_page_of_the_list_is_there(client: httpx.Client) -> None:
    listed = re.findall(r"^\| (`/.*?) \|", TEXT, flags=re.MULTILINE)
    paths = re.findall(r"`(/[a-z/.]*)`", " ".join(listed))
    assert len(paths) == 3
    for path in paths:
        assert client.get(path).status_code == 200


def test_answers_are_not_held_back_by_the_system() -> None:
    with open_listener("127.0.0.1", 0) as listener:
        # asyncio asks for no delay only where the protocol is named.
        assert listener.proto != 0
