import hashlib
import os
from pathlib import Path

import pytest
from wording import has

from fleetrank.foundation import small_file
from fleetrank.foundation.errors import BadFileError, MissingFileError
from fleetrank.foundation.small_file import (
    IrregularFileError,
    file_sha256,
    open_regular,
    read_small_bytes,
    read_small_text,
    resolved,
)


def test_a_regular_file_and_a_link_to_one_are_read(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfxyz")
    (tmp_path / "b").symlink_to("a")
    assert read_small_text(tmp_path / "b") == "xyz"
    with open_regular(tmp_path / "b") as file:
        assert file.read() == b"\xef\xbb\xbfxyz"


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "/"])
def test_links_to_anything_else_are_refused(tmp_path, target) -> None:
    path = tmp_path / "a"
    path.symlink_to(target)
    with pytest.raises(IrregularFileError, match="not a regular file"):
        open_regular(path)
    with pytest.raises(BadFileError, match=f"{path} cannot be read"):
        read_small_text(path)


def test_a_pipe_is_not_waited_for(tmp_path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(BadFileError, match="a pipe"):
        read_small_text(tmp_path / "a")


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a"
    path.touch()
    before = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda self: before)
    with pytest.raises(IrregularFileError, match="a pipe"):
        open_regular(path)


def test_a_link_to_itself_and_names_that_no_file_can_have_are_refused(tmp_path) -> None:
    path = tmp_path / "a"
    path.symlink_to("a")
    for bad in (path, tmp_path / "x\0y", tmp_path / ("n" * 300)):
        with pytest.raises(BadFileError, match="cannot be read"):
            read_small_text(bad)
    for bad in (path, tmp_path / "x\0y"):
        with pytest.raises(OSError, match=r"symbolic links|no file can have that name"):
            resolved(bad)


def test_a_file_that_is_missing_or_too_large_is_named(tmp_path) -> None:
    path = tmp_path / "a"
    with pytest.raises(MissingFileError, match=f"{path} does not exist"):
        read_small_bytes(path, 3)
    path.write_bytes(b"abc")
    assert read_small_bytes(path, 3) == b"abc"
    path.write_bytes(b"abcd")
    with pytest.raises(BadFileError, match="larger than 3 bytes"):
        read_small_bytes(path, 3)


def test_the_size_is_that_of_what_is_read_and_not_what_the_system_says() -> None:
    # Files of /proc have size 0, whatever is in them.
    with pytest.raises(BadFileError, match="larger than 10 bytes"):
        read_small_bytes(Path("/proc/self/status"), 10)


def test_a_digest_is_that_of_the_bytes_and_ends_for_a_file_that_does_not(tmp_path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 3_000_000)
    assert file_sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(IrregularFileError, match="grows"):
        file_sha256(Path("/proc/self/pagemap"))


def test_a_long_file_is_named_before_it_is_read(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(small_file, "_LONG_BYTES", 1 << 20)
    (tmp_path / "weights").touch()
    os.truncate(tmp_path / "weights", 2 << 20)
    file_sha256(tmp_path / "weights")
    assert has(caplog.text, "weights", "0 GB, mostly holes")
    (tmp_path / "weights").write_bytes(b"x" * (2 << 20))
    caplog.clear()
    file_sha256(tmp_path / "weights")
    assert caplog.text.endswith("0 GB\n")
