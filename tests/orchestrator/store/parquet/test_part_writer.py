import io
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from full_disk import no_room_beyond

from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.analysis.stored.part_files import (
    OPEN_SEAL,
    SEAL_KEY,
    BrokenSealError,
    close_seal,
    is_sealed,
)
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.store.parquet.part_reader import part_frames
from fleetrank.orchestrator.store.parquet.parts import sealed_parquet, write_sealed


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


def _by_pyarrow(frame: pl.DataFrame) -> bytes:
    """A part as fleetrank wrote it until 0.1.0: other encodings, and a checksum for each page."""
    import pyarrow.parquet as pq

    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        table.schema,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=["model"],
        column_encoding={"samples_ns.list.element": "DELTA_BINARY_PACKED"},
    ) as writer:
        writer.add_key_value_metadata({SEAL_KEY: OPEN_SEAL})
        writer.write_table(table)
    close_seal(buffer)
    return buffer.getvalue()


def test_a_part_that_pyarrow_wrote_is_read(tmp_path) -> None:
    frame = pl.DataFrame({"model": ["a", "b"], "samples_ns": [[1, 2], None]})
    path = tmp_path / "part-00000000.parquet"
    path.write_bytes(_by_pyarrow(frame))
    assert is_sealed(path)
    (found,) = part_frames(path, ["model", "samples_ns", "device"])
    expected = frame.with_columns(pl.lit(None, pl.String).alias("device"))
    assert found.equals(expected)


@pytest.mark.slow
def test_a_part_has_the_types_that_pyarrow_wrote(tmp_path) -> None:
    import pyarrow.parquet as pq

    frame = pl.DataFrame(schema=SCHEMA)
    ours, theirs = (
        pq.ParquetFile(io.BytesIO(content))
        for content in (sealed_parquet(frame), _by_pyarrow(frame))
    )
    assert ours.schema.equals(theirs.schema)
    assert ours.schema_arrow.remove_metadata() == theirs.schema_arrow.remove_metadata()


def test_any_reader_reads_it(path) -> None:
    import duckdb

    expected = pl.DataFrame({"model": ["a", "b"] * 50, "samples_ns": [[1, 2], None] * 50})
    assert pl.read_parquet(path).equals(expected)
    with duckdb.connect(":memory:") as connection:
        found = connection.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    assert found == expected.rows()


def test_a_full_disk_is_named_and_keeps_the_old_file(path) -> None:
    before = path.read_bytes()
    frames = [pl.DataFrame({"model": [f"model {n}" for n in range(10_000)]})] * 10
    with no_room_beyond(1_000), pytest.raises(StoreError, match="file size limit"):
        write_sealed(path, frames)
    assert path.read_bytes() == before
    write_sealed(path, frames)
    assert is_sealed(path)
    assert pl.read_parquet(path).equals(pl.concat(frames))


def test_an_error_of_the_rows_keeps_its_type(path) -> None:
    def rows() -> Iterator[pl.DataFrame]:
        yield pl.DataFrame({"model": ["a"]})
        raise LookupError("no such row")

    with pytest.raises(LookupError, match="no such row"):
        write_sealed(path, rows())
