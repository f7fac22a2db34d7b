"""Texts of users: a byte order mark says how they are encoded, in every reader."""

import codecs
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetrank.analysis.importers.qai_hub import _yaml
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import read_json_object, read_toml
from fleetrank.foundation.small_file import decoded
from fleetrank.foundation.user_file import read_csv
from fleetrank.orchestrator.workspace.name_list import read_names
from fleetrank.orchestrator.workspace.user_shares import read_shares
from fleetrank.orchestrator.workspace.yaml_file import read_yaml

READERS: dict[str, tuple[str, Callable[[Path], object], object]] = {
    "csv": ("ü,b\n1,2\n", lambda p: read_csv(p.read_bytes(), "t")[0], ["ü", "b"]),
    "shares": ("device,share\nü,1\n", read_shares, {"ü": 1.0}),
    "names": ("ü\n", read_names, ("ü",)),
    "toml": ('"ü" = "a"\n', read_toml, {"ü": "a"}),
    "json": ('{"ü": 1}', read_json_object, {"ü": 1}),
    "yaml": ("ü: 1\n", read_yaml, {"ü": 1}),
    "hub": ("name: ü\n", lambda p: _yaml("t", p.read_bytes()), {"name": "ü"}),
}
ENCODINGS = {
    "no mark": (b"", "utf-8"),
    "UTF-8": (codecs.BOM_UTF8, "utf-8"),
    "PowerShell": (codecs.BOM_UTF16_LE, "utf-16-le"),
    "big endian": (codecs.BOM_UTF16_BE, "utf-16-be"),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_honours_the_mark(tmp_path: Path, reader: str, encoding: str) -> None:
    text, read, expected = READERS[reader]
    mark, name = ENCODINGS[encoding]
    (tmp_path / "f").write_bytes(mark + text.replace("\n", "\r\n").encode(name))
    assert read(tmp_path / "f") == expected


def test_what_the_mark_does_not_say_is_refused() -> None:
    with pytest.raises(BadFileError, match="line 2 is not UTF-16"):
        decoded(codecs.BOM_UTF16_LE + "ü\n".encode("utf-16-le") + b"\x00", "t")
