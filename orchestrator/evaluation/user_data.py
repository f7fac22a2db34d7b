"""Reads the text and the examples that a user evaluates on, and their checksums.

A tokenizer can turn one character into billions, and a damaged image can crash its library. So
this module is also a program: `DataChild` reads the files and starts it with limits of memory and
time. It gets a line of JSON and bytes, and answers with the same, one after another. It ends when
its input ends.
"""

import csv
import hashlib
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.host.control_groups import default_limit_bytes
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.errors import FleetError, count_of, failing_as, is_rust_panic, shortened
from fleetrank.foundation.files import file_sha256, read_small_bytes, read_small_text
from fleetrank.foundation.own_process import (
    die_with_parent,
    keep_stdout_for_the_result,
    limit_memory,
    write_all,
)
from fleetrank.foundation.supervised_child import End, SupervisedChild, exit_name
from fleetrank.models.calibration import PICTURE_SUFFIXES, PictureForm, as_input, opened_image
from fleetrank.orchestrator.compute.child import Reply
from fleetrank.orchestrator.compute.child import ask as send
from fleetrank.orchestrator.errors import UsageError, is_installed

MEMORY_BYTES = 4 << 30
"""A text of 30 MB in one document takes 2 GB while it is encoded; 100 million pixels take 1 GB."""
LARGEST_FILE_BYTES = 256 << 20
"""Of one tokenizer or image: the largest published tokenizer.json has 33 MB."""
_REMEDY = "replace the file, or divide the text into shorter documents"
_START_S = 60.0
"""Importing the libraries takes 0.3 s; on a busy host with a cold disk, many times that."""
_BYTES_PER_S = 100_000
"""The slowest tokenizers read ten times that."""
_MAX_REPLY_BYTES = 1 << 30
"""Eight bytes for each token of a text of 128 million tokens."""


class Act(StrEnum):
    """What the child does with the bytes that it gets."""

    OPEN_TOKENIZER = "open_tokenizer"
    ENCODE = "encode"
    PICTURE = "picture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request; the bytes of a file or a text follow it.

    Attributes:
        where: what the bytes are, for messages: the path of a file.
        n_bytes: how many follow.
        details: JSON text of further facts.
    """

    act: Act
    where: str
    n_bytes: int
    details: str = ""


class DataChild:
    """The child, for its parent; it starts with the first request, and its owner calls `close`."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._limit_bytes = min(memory_bytes, default_limit_bytes())
        self._child: SupervisedChild | None = None

    def ask(self, act: Act, where: str, content: bytes, details: str = "") -> bytes:
        """Sends a request, and waits for the answer.

        Args:
            act: what to do.
            where: what the content is, for messages.
            content: of a file, or a text.
            details: JSON text of further facts.

        Raises:
            UsageError: the content is not valid, or beyond the limits of the child.
        """
        limit_s = _START_S + len(content) / _BYTES_PER_S
        if self._child is None:
            # -P: a workspace folder cannot shadow a package.
            module = ("-P", "-m", "fleetrank.orchestrator.evaluation.user_data")
            self._child = SupervisedChild([sys.executable, *module, str(self._limit_bytes)])
        asked = Asked(act=act, where=where, n_bytes=len(content), details=details)
        request = f"{to_json(asked)}\n".encode() + content
        end, answer = send(self._child, request, timeout_s=limit_s, max_bytes=_MAX_REPLY_BYTES)
        if answer is None:
            raise self._no_answer(where, end, limit_s)
        reply, body = answer
        if reply.refusal is not None:
            _, message, remedy = reply.refusal
            raise UsageError(message, remedy)
        return body

    def close(self) -> None:
        """Ends the process."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _no_answer(self, where: str, end: End, limit_s: float) -> UsageError:
        code = 0 if self._child is None else self._child.end()
        self._child = None
        if end is End.TIME_LIMIT:
            return UsageError(f"reading {where} took longer than {limit_s:.0f} s", _REMEDY)
        if end is End.TOO_MUCH_OUTPUT:
            return UsageError(f"{where} becomes more than {_MAX_REPLY_BYTES >> 20} MiB", _REMEDY)
        return UsageError(
            f"{where} ended the process that read it ({exit_name(code)}); it may need more than "
            f"its limit of {self._limit_bytes >> 20} MiB",
            _REMEDY,
        )


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


# Tokenizers: the bytes of the text, a `tokenizer.json`, or a SentencePiece model.

BYTES = "bytes"
_SENTENCEPIECE = ".model"
_FIRST_TOKENS = (
    "<s>", "<|begin_of_text|>", "<bos>", "[BOS]", "<|startoftext|>", "<|endoftext|>", "</s>",
    "<|end_of_text|>", "<eos>",
)  # fmt: skip
"""Names of the token before a text in published tokenizers; the token at an end is the second
choice, as in lm-evaluation-harness."""


class Encode(Protocol):
    """Turns text into token ids, without special tokens."""

    def __call__(self, text: str) -> list[int]:
        """Encodes a text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """What an evaluation needs to know of a tokenizer.

    Attributes:
        name: `bytes`, or the name of the file.
        sha256: of the file; `None` for bytes.
        size: ids are below this; some may have no token.
        prefix: the id that the first token of a text is predicted from.
        leads: whether the tokenizer puts the prefix before every text that it encodes for a model.
    """

    name: str
    sha256: str | None
    size: int
    prefix: int
    leads: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer(TokenizerFacts):
    """One tokenizer."""

    encode: Encode


def open_tokenizer(given: str, child: DataChild) -> Tokenizer:
    """Opens a tokenizer.

    Args:
        given: `bytes`, a `.json` file of the library `tokenizers`, a `.model` file of
            SentencePiece, or a folder with `tokenizer.json` or `tokenizer.model`.
        child: parses the file and encodes all texts; it opens one tokenizer.

    Raises:
        BadFileError: it is not a regular file, or too large.
        UsageError: it is not a tokenizer, or its library is not installed.
    """
    if given == BYTES:
        return Tokenizer(
            name=BYTES,
            sha256=None,
            size=256,
            prefix=0,
            leads=False,
            encode=lambda text: list(text.encode()),
        )
    path = Path(given)
    if path.is_dir():
        inside = (path / "tokenizer.json", path / "tokenizer.model")
        path = next((file for file in inside if file.is_file()), path)
    if path.is_dir() or not path.exists():
        raise UsageError(
            f"{given} is not a tokenizer", "give bytes, tokenizer.json or tokenizer.model"
        )
    library = "sentencepiece" if path.suffix == _SENTENCEPIECE else "tokenizers"
    if not is_installed(library):
        raise UsageError(f"this tokenizer needs {library}", f"pip install {library}")
    content = read_small_bytes(path, LARGEST_FILE_BYTES)
    facts = from_json(TokenizerFacts, child.ask(Act.OPEN_TOKENIZER, str(path), content).decode())

    def encode(text: str) -> list[int]:
        found = child.ask(Act.ENCODE, str(path), text.encode())
        tokens: list[int] = np.frombuffer(found, dtype=np.int64).tolist()
        return tokens

    return Tokenizer(**asdict(facts), encode=encode)


def refuse_unfit(tokenizer: Tokenizer, vocabulary: int, model: str) -> None:
    """Checks that the model has every token.

    Raises:
        UsageError: the tokenizer has an id beyond the tokens of the model.
    """
    if tokenizer.size > vocabulary:
        raise UsageError(
            f"tokenizer {tokenizer.name} has ids up to {tokenizer.size - 1:,}, {model} has "
            f"{vocabulary:,} tokens",
            "give the tokenizer that the model was trained with",
        )


def read_tokenizer(where: str, content: bytes) -> tuple[TokenizerFacts, Encode]:
    """Parses a file in this process; the caller limits its memory and time.

    Args:
        where: its path; `.model` is one of SentencePiece.
        content: of the file.

    Raises:
        UsageError: it is not a tokenizer.
    """
    is_sentencepiece = where.endswith(_SENTENCEPIECE)
    try:
        size, prefix, leads, encode = (_sentencepiece if is_sentencepiece else _json)(content)
    except Exception as error:  # the libraries raise nothing more specific
        kind = "model" if is_sentencepiece else "json"
        raise UsageError(
            f"{where} is not a tokenizer: {error}", f"give a tokenizer.{kind}"
        ) from error
    facts = TokenizerFacts(
        name=Path(where).name,
        sha256=hashlib.sha256(content).hexdigest(),
        size=size,
        prefix=prefix,
        leads=leads,
    )
    return facts, encode


def _json(content: bytes) -> tuple[int, int, bool, Encode]:
    from tokenizers import Tokenizer as Opened

    opened = Opened.from_buffer(content)
    opened.no_truncation()
    opened.no_padding()
    ids = (opened.token_to_id(name) for name in _FIRST_TOKENS)
    prefix = next((one for one in ids if one is not None), None)
    # Not the number of tokens: the ids of a vocabulary can have holes.
    size = 1 + max(opened.get_vocab(with_added_tokens=True).values(), default=-1)
    leads = opened.encode("a").ids[:1] == [prefix]
    return size, prefix or 0, leads, lambda text: opened.encode(text, add_special_tokens=False).ids


def _sentencepiece(content: bytes) -> tuple[int, int, bool, Encode]:
    from sentencepiece import SentencePieceProcessor

    opened = SentencePieceProcessor(model_proto=content)
    first = [one for one in (opened.bos_id(), opened.eos_id()) if one >= 0]
    prefix = first[0] if first else 0
    return opened.vocab_size(), prefix, opened.bos_id() >= 0, lambda text: list(opened.encode(text))


# Images to classify: a folder with a folder of each class, or a Parquet file.

_FORM = (
    "give a folder with one folder of images for each class, or a Parquet file with the columns "
)
_COLUMNS = "image and label"


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureData:
    """Images with their classes.

    Attributes:
        labels: number of the class of each image.
        n_classes: number of classes that the data names; `None` if it only numbers them.
        content_of: the bytes of the image of a number, and what they are called in messages.
    """

    name: str
    sha256: str
    labels: tuple[int, ...]
    n_classes: int | None
    content_of: Callable[[int], tuple[bytes, str]]

    def input_of(self, number: int, form: PictureForm, child: DataChild) -> NDArray[np.float32]:
        """The image of a number as the input of a model.

        Raises:
            BadFileError: it is not a regular file, or too large.
            UsageError: it is not an image.
        """
        content, where = self.content_of(number)
        values = child.ask(Act.PICTURE, where, content, to_json(form))
        return np.frombuffer(values, dtype=np.float32).reshape(form.shape)


def read_picture_data(path: Path, classes: Path | None = None) -> PictureData:
    """Reads names and labels; images are opened one by one.

    Args:
        path: a folder of classes, or a Parquet file.
        classes: a text file with the names of the classes in the order of the model's outputs, one
            on each line; without it, the folders in the order of their names.

    Raises:
        BadFileError: a file is missing, not regular, or too large.
        UsageError: the library is missing, a class is unknown, or there are no images.
    """
    if not is_installed("PIL"):
        raise UsageError("images need Pillow", "pip install pillow")
    if path.is_dir():
        return _of_folder(path, _class_names(path, classes))
    if path.suffix == ".parquet":
        return _of_parquet(path)
    raise UsageError(f"{path} has no images", _FORM + _COLUMNS)


def _class_names(path: Path, classes: Path | None) -> list[str]:
    folders = sorted(folder.name for folder in path.iterdir() if folder.is_dir())
    if classes is None:
        return folders
    lines = read_small_text(classes).split("\n")
    known = [name.strip() for name in lines if name.strip()]
    if unknown := sorted(set(folders) - set(known)):
        raise UsageError(f"{classes} lacks the classes {', '.join(unknown[:5])}", "add them")
    return known


def _of_folder(path: Path, classes: Sequence[str]) -> PictureData:
    found = [
        (file, number)
        for number, name in enumerate(classes)
        for file in sorted((path / name).glob("*"))
        if file.suffix.lower() in PICTURE_SUFFIXES
    ]
    if not found:
        raise UsageError(f"{path} has no images", _FORM + _COLUMNS)
    return PictureData(
        name=path.name,
        sha256=data_sha256(path, "*/*"),
        labels=tuple(number for _, number in found),
        n_classes=len(classes),
        content_of=lambda number: (
            read_small_bytes(found[number][0], LARGEST_FILE_BYTES),
            str(found[number][0]),
        ),
    )


def _of_parquet(path: Path) -> PictureData:
    rows = read_examples(path, {"image": ("image", "img"), "label": ("label", "labels")})
    with failing_as(UsageError, f"{path}: a label is not a number", _FORM + _COLUMNS):
        labels = tuple(int(str(row["label"])) for row in rows)
    if min(labels) < 0:
        raise UsageError(f"{path} has images without a label", "use a split with labels")
    return PictureData(
        name=path.name,
        sha256=data_sha256(path),
        labels=labels,
        n_classes=None,
        content_of=lambda number: (_bytes(rows[number]["image"]), f"{path}, row {number + 1}"),
    )


def _bytes(value: object) -> bytes:
    """Data sets on the Hub store bytes with a path; other files only the bytes."""
    inner = value.get("bytes") if isinstance(value, dict) else value
    return inner if isinstance(inner, bytes) else b""


def refuse_unfit_classes(data: PictureData, n_outputs: int, model: str) -> None:
    """Checks that the model has one output for each class.

    Raises:
        UsageError: it has another number of outputs.
    """
    if data.n_classes is not None and data.n_classes != n_outputs:
        raise UsageError(
            f"{data.name} has {count_of(data.n_classes, 'class', 'classes')}, {model} has "
            f"{n_outputs:,} outputs",
            "name the classes of the model's outputs with `classes=FILE`",
        )


# The child.


class Answering:
    """Answers requests; it keeps the last tokenizer that it opened."""

    def __init__(self) -> None:
        self._encode: Encode | None = None

    def reply(self, asked: Asked, content: bytes) -> bytes:
        """Answers one request; every error of a library becomes a refusal."""
        try:
            return Reply().encode(self._answer(asked, content))
        except FleetError as error:
            return Reply.refusing(error).encode()
        except BaseException as error:
            if not (isinstance(error, Exception) or is_rust_panic(error)):
                raise
            what = shortened(f"{type(error).__name__}: {error}")
            return Reply.refusing(
                UsageError(f"{asked.where} cannot be read: {what}", "replace the file")
            ).encode()

    def _answer(self, asked: Asked, content: bytes) -> bytes:
        if asked.act is Act.PICTURE:
            form = from_json(PictureForm, asked.details)
            return as_input(opened_image(content, asked.where), form).tobytes()
        if asked.act is Act.OPEN_TOKENIZER:
            facts, self._encode = read_tokenizer(asked.where, content)
            return to_json(facts).encode()
        if self._encode is None:
            raise UsageError("no tokenizer is open", "open one first")
        return np.array(self._encode(content.decode()), dtype=np.int64).tobytes()


def main() -> None:
    """Answers until the input ends."""
    die_with_parent()
    result_fd = keep_stdout_for_the_result()
    limit_memory(int(sys.argv[1]))
    answering = Answering()
    while line := sys.stdin.buffer.readline():
        asked = from_json(Asked, line.decode())
        write_all(result_fd, answering.reply(asked, sys.stdin.buffer.read(asked.n_bytes)))


if __name__ == "__main__":
    main()
