"""Reads the text and the examples that a user evaluates on, and their checksums."""

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.small_file import file_sha256, read_small_bytes, read_small_text
from fleetrank.foundation.visible_text import shortened
from fleetrank.orchestrator.errors import UsageError

LARGEST_BYTES = 1 << 30
"""Of a file of text or examples: WikiText-103 has 0.5 GB. It is read into memory."""
_FORMATS = "give a .tsv, .jsonl or .parquet file in the form in which the data set is published"
Example = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextData:
    """Documents to score.

    Attributes:
        name: of the file or folder.
        sha256: of the file, or of the names and checksums of a folder's files.
        documents: not empty; no document is empty.
    """

    name: str
    sha256: str
    documents: tuple[str, ...]


def read_text_data(path: Path, field: str = "text") -> TextData:
    """Reads documents: each line of a `.jsonl`, each row of a `.parquet`, each file of a folder.

    Any other file is one document.

    Args:
        path: file, or folder with `*.txt`.
        field: key or column with the text.

    Raises:
        BadFileError: a file is missing, not regular, too large, or not UTF-8.
        UsageError: it lacks the field, or holds no text.
    """
    if path.is_dir():
        files = sorted(path.glob("*.txt"))
        texts = [read_small_text(file, LARGEST_BYTES) for file in files]
    elif path.suffix in {".jsonl", ".parquet"}:
        texts = [str(row[field]) for row in read_examples(path, {field: (field,)})]
    else:
        texts = [read_small_text(path, LARGEST_BYTES)]
    documents = tuple(text for text in texts if text)
    if not documents:
        raise UsageError(f"{path} holds no text", "name a file with text in UTF-8")
    return TextData(name=path.name, sha256=data_sha256(path), documents=documents)


def data_sha256(path: Path, pattern: str = "*.txt") -> str:
    """The sha256 of a file, or of the names and checksums of the files of a folder."""
    if path.is_file():
        return file_sha256(path)
    files = sorted(file for file in path.glob(pattern) if file.is_file())
    parts = [(str(file.relative_to(path)), file_sha256(file)) for file in files]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read_examples(path: Path, names: Mapping[str, Sequence[str]]) -> list[Example]:
    """Reads rows with exactly the wanted fields.

    Args:
        path: a `.tsv`, `.jsonl` or `.parquet` file.
        names: field to the names that published forms of the data set have for it.

    Raises:
        BadFileError: the file is missing, not regular, too large, or not UTF-8.
        UsageError: it is not in the form that its name says, or a row lacks a field.
    """
    readers = {".tsv": _tsv, ".jsonl": _jsonl, ".parquet": _parquet}
    if path.suffix not in readers:
        raise UsageError(f"{path} has an unknown format", _FORMATS)
    rows = readers[path.suffix](path)
    if not rows:
        raise UsageError(f"{path} holds no row", _FORMATS)
    return [_fields(path, number, row, names) for number, row in enumerate(rows, 1)]


def _fields(
    path: Path, number: int, row: Example, names: Mapping[str, Sequence[str]]
) -> dict[str, object]:
    found = {}
    for field, known in names.items():
        name = next((name for name in known if row.get(name) is not None), None)
        if name is None:
            there = shortened(", ".join(map(str, row)))
            raise UsageError(
                f"{path}: row {number} has no {' or '.join(known)}; it has {there}", _FORMATS
            )
        found[field] = row[name]
    return found


def _tsv(path: Path) -> list[Example]:
    # The published files do not quote: a quotation mark is a character of the sentence.
    reader = csv.DictReader(
        io.StringIO(read_small_text(path, LARGEST_BYTES), newline=""),
        delimiter="\t",
        quoting=csv.QUOTE_NONE,
    )
    with failing_as(UsageError, f"{path} is not a table with tabs", _FORMATS):
        return list(reader)


def _jsonl(path: Path) -> list[Example]:
    rows: list[Example] = []
    # Not `splitlines`, which also splits at characters that JSON allows inside a text.
    for number, line in enumerate(read_small_text(path, LARGEST_BYTES).split("\n"), 1):
        if not line.strip():
            continue
        with failing_as(UsageError, f"{path}: line {number} is not JSON", _FORMATS):
            row = json.loads(line)
        if not isinstance(row, dict):
            raise UsageError(f"{path}: line {number} is not a JSON object", _FORMATS)
        rows.append(row)
    return rows


def _parquet(path: Path) -> list[Example]:
    import polars as pl

    content = read_small_bytes(path, LARGEST_BYTES)
    with failing_as(UsageError, f"{path} is not a Parquet file", _FORMATS):
        return list(pl.read_parquet(io.BytesIO(content)).iter_rows(named=True))
