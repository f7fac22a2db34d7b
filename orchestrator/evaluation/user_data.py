"""Reads the text and the examples that a user evaluates on, and their checksums.

A tokenizer can turn one character into billions, and a damaged image can crash its library. So
this module is also a program: `DataChild` reads the files and starts it with limits of memory and
time. It gets a line of JSON and bytes, and answers with the same, one after another. It ends when
its input ends.
"""

import hashlib
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np

from fleetrank.device_agents.linux.control_groups import default_limit_bytes
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.errors import FleetError, is_rust_panic
from fleetrank.foundation.own_process import (
    die_with_parent,
    keep_stdout_for_the_result,
    limit_memory,
    write_all,
)
from fleetrank.foundation.small_file import read_small_bytes
from fleetrank.foundation.supervised_child import End, SupervisedChild, exit_name
from fleetrank.foundation.visible_text import shortened
from fleetrank.models.calibration import PictureForm, as_input, opened_image
from fleetrank.orchestrator.compute.child import ask as send
from fleetrank.orchestrator.compute.jobs import Reply
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.extras import is_installed

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
class DataRequest:
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
        asked = DataRequest(act=act, where=where, n_bytes=len(content), details=details)
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


class DataService:
    """Answers requests; it keeps the last tokenizer that it opened."""

    def __init__(self) -> None:
        self._encode: Encode | None = None

    def reply(self, asked: DataRequest, content: bytes) -> bytes:
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

    def _answer(self, asked: DataRequest, content: bytes) -> bytes:
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
    answering = DataService()
    while line := sys.stdin.buffer.readline():
        asked = from_json(DataRequest, line.decode())
        write_all(result_fd, answering.reply(asked, sys.stdin.buffer.read(asked.n_bytes)))


if __name__ == "__main__":
    main()
