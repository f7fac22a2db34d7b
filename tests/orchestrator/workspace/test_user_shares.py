"""The file of users: text with two readings is refused."""

from pathlib import Path

import pytest

from fleetrank.foundation.errors import BadFileError
from fleetrank.orchestrator.workspace.user_shares import read_shares


@pytest.mark.parametrize(
    "text",
    [
        "device,share\na,1_0\n",
        "device,share\na,\u0661\u0662\n",
        "device,share\na,12,5\n",
        "device,share\na\n",
        "device,share,share\na,1,2\n",
        "device,device,share\na,b,2\n",
    ],
)
def test_a_share_with_two_readings_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.csv"
    path.write_text(text)
    with pytest.raises(BadFileError):
        read_shares(path)


def test_other_columns_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "users.csv"
    path.write_bytes(b"\xef\xbb\xbfshare,note,device\r\n12%,x,pixel-7\r\n")
    assert read_shares(path) == {"pixel-7": 0.12}
