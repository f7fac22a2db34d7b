"""A file that is fetched from a board in pieces: its total time, without a board."""

import base64
import hashlib
from pathlib import Path
from typing import cast

import pytest

from fleetrank.device_agents.board.board_inference import fetch_file
from fleetrank.device_agents.board.board_link import BoardLink
from fleetrank.device_agents.errors import BadOutputError, TimedOutError
from fleetrank.foundation.codec import Json
from fleetrank.foundation.units import NS_PER_S

CONTENT = bytes(range(256)) * 4
NAME = f"{hashlib.sha256(CONTENT).hexdigest()}.npz"


class SlowBoard:
    """Sends `piece` bytes in each answer, which takes `answer_s` of a clock of its own."""

    host = "board"

    def __init__(self, piece: int, answer_s: float, content: bytes = CONTENT) -> None:
        self.now_ns, self.limits_s, self._content = 0, list[float](), content
        self._piece, self._answer_ns = piece, int(answer_s * NS_PER_S)

    def call(self, _method: str, _name: str, start: int, *, timeout_s: float, **_: object) -> Json:
        self.limits_s.append(timeout_s)
        self.now_ns += self._answer_ns
        return base64.b64encode(self._content[start : start + self._piece]).decode()

    def fetch(self, path: Path) -> None:
        link = cast(BoardLink, self)
        fetch_file(link, NAME, len(CONTENT), path, lambda: False, clock=lambda: self.now_ns)


def test_a_file_arrives_in_pieces(tmp_path: Path) -> None:
    SlowBoard(piece=100, answer_s=1.0).fetch(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == CONTENT


def test_a_piece_that_is_damaged_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(BadOutputError, match="damaged"):
        SlowBoard(piece=100, answer_s=1.0, content=b"?" + CONTENT[1:]).fetch(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_board_that_sends_byte_by_byte_is_left_after_a_total_time(tmp_path: Path) -> None:
    board = SlowBoard(piece=1, answer_s=10.0)
    with pytest.raises(TimedOutError, match=r"of 1,024 bytes"):
        board.fetch(tmp_path / "out")
    assert board.now_ns <= 250 * NS_PER_S
    assert board.limits_s[-1] < 11.0
    assert not (tmp_path / "out").exists()
