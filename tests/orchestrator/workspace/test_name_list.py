"""A file of models: what it may hold, and what is refused with its line."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.foundation.errors import BadFileError, MissingFileError
from fleetrank.foundation.visible_text import visible_line
from fleetrank.orchestrator.workspace.name_list import read_names
from fleetrank.orchestrator.workspace.selectors import MAX_NAMES, MAX_TEXT


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    return tmp_path / "models.txt"


def test_names_and_patterns_stand_one_a_line(listed: Path) -> None:
    text = "\ufeff# the study\nresnet18\n\n  timm:vit_*@224  \t# all of them\r\nc#net\n"
    listed.write_bytes(text.encode())
    assert read_names(listed) == ("resnet18", "timm:vit_*@224", "c#net")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"resnet18\nres\x1b[2Jnet\n", "line 2"),
        (b"resnet18\n\nres\x00net\n", "line 3"),
        (b"a\tb\n", "line 1"),
        ("a\u202eb".encode(), "line 1"),
        (b"resnet18\n" + b"m" * (MAX_TEXT + 1), "line 2 has 501 characters"),
        (b"resnet18\n\xff\n", "line 2 is not UTF-8"),
        (b"# nothing\n\n", "holds no name"),
        (b"m\n" * (MAX_NAMES + 1), "10,001 names"),
        (b"m\n" * 600_000, "larger than 1,000,000 bytes"),
    ],
)
def test_what_is_no_list_of_names_is_refused(listed: Path, content: bytes, message: str) -> None:
    listed.write_bytes(content)
    with pytest.raises(BadFileError, match=message) as caught:
        read_names(listed)
    assert caught.value.remedy
    assert visible_line(caught.value.message) == caught.value.message


def test_only_a_regular_file_is_read(listed: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        read_names(listed)
    os.mkfifo(listed)
    for path in (listed, tmp_path, Path("/dev/zero")):
        with pytest.raises(BadFileError, match="regular file"):
            read_names(path)


@given(st.binary(max_size=200))
def test_any_content_gives_names_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(content)
    try:
        names = read_names(path)
    except BadFileError:
        return
    assert names
    assert all(name == name.strip() == visible_line(name) for name in names)
    assert all(names)
