from pathlib import Path

import polars as pl
import pytest

from fleetrank.analysis.stored.part_files import BrokenSealError, is_sealed
from fleetrank.orchestrator.store.parquet.parts import sealed_parquet


@pytest.fixture
def path(tmp_path: Path) -> Path:
    frame = pl.DataFrame({"model": ["a", "b"] * 50, "samples_ns": [[1, 2], None] * 50})
    (tmp_path / "x.parquet").write_bytes(sealed_parquet(frame))
    return tmp_path / "x.parquet"


def test_a_file_that_was_written_with_a_checksum_has_one(path) -> None:
    assert is_sealed(path)


def test_every_flipped_byte_is_noticed(path) -> None:
    content = path.read_bytes()
    passed = []
    for at in range(0, len(content), 7):
        # Each in a new file: what was found of a file is kept while it does not change.
        changed = path.with_name(f"{at}.parquet")
        changed.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        try:
            is_sealed(changed)
            passed.append(at)
        except BrokenSealError:
            continue
    assert passed == []


def test_every_cut_is_noticed_or_leaves_no_parquet(path) -> None:
    content = path.read_bytes()
    for at in range(0, len(content) - 1, 101):
        changed = path.with_name(f"{at}.parquet")
        changed.write_bytes(content[:at])
        try:
            assert not is_sealed(changed)
        except BrokenSealError:
            continue
        with pytest.raises((pl.exceptions.PolarsError, OSError)):
            pl.read_parquet(changed)


def test_another_writer_s_file_has_none(tmp_path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "y.parquet")
    assert not is_sealed(tmp_path / "y.parquet")


def test_pages_have_checksums_of_their_own(path) -> None:
    import pyarrow.parquet as pq

    content = bytearray(path.read_bytes())
    content[40] ^= 1  # in the first page
    path.with_name("z.parquet").write_bytes(content)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path.with_name("z.parquet"), page_checksum_verification=True)


def test_any_reader_reads_it(path) -> None:
    import duckdb

    expected = pl.DataFrame({"model": ["a", "b"] * 50, "samples_ns": [[1, 2], None] * 50})
    assert pl.read_parquet(path).equals(expected)
    with duckdb.connect(":memory:") as connection:
        found = connection.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    assert found == expected.rows()
