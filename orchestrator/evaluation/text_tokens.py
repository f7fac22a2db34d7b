"""Tokenizers: the bytes of the text, a `tokenizer.json`, or a SentencePiece model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleetrank.foundation.small_file import file_sha256
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.extras import is_installed

BYTES = "bytes"
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
class Tokenizer:
    """One tokenizer.

    Attributes:
        name: `bytes`, or the name of the file.
        sha256: of the file; `None` for bytes.
        size: ids are below this.
        prefix: the id that the first token of a text is predicted from.
        leads: whether the tokenizer puts the prefix before every text that it encodes for a model.
    """

    name: str
    sha256: str | None
    size: int
    prefix: int
    leads: bool
    encode: Encode


def open_tokenizer(given: str) -> Tokenizer:
    """Opens a tokenizer.

    Args:
        given: `bytes`, a `.json` file of the library `tokenizers`, a `.model` file of
            SentencePiece, or a folder with `tokenizer.json` or `tokenizer.model`.

    Raises:
        UsageError: it cannot be read, or its library is not installed.
    """
    if given == BYTES:
        return Tokenizer(name=BYTES, sha256=None, size=256, prefix=0, leads=False, encode=_bytes_of)
    path = Path(given)
    if path.is_dir():
        inside = (path / "tokenizer.json", path / "tokenizer.model")
        path = next((file for file in inside if file.is_file()), path)
    if not path.is_file():
        raise UsageError(
            f"{given} is not a tokenizer", "give bytes, tokenizer.json or tokenizer.model"
        )
    opened = _open_sentencepiece if path.suffix == ".model" else _open_json
    return opened(path)


def refuse_unfit(tokenizer: Tokenizer, vocabulary: int, model: str) -> None:
    """Checks that the model has every token.

    Raises:
        UsageError: the tokenizer has more tokens than the model.
    """
    if tokenizer.size > vocabulary:
        raise UsageError(
            f"tokenizer {tokenizer.name} has {tokenizer.size:,} tokens, {model} {vocabulary:,}",
            "give the tokenizer that the model was trained with",
        )


def _bytes_of(text: str) -> list[int]:
    return list(text.encode())


def _need(library: str) -> None:
    if not is_installed(library):
        raise UsageError(f"this tokenizer needs {library}", f"pip install {library}")


def _open_json(path: Path) -> Tokenizer:
    _need("tokenizers")
    from tokenizers import Tokenizer as Opened

    try:
        opened = Opened.from_file(str(path))
    except Exception as error:  # the library raises nothing more specific
        raise UsageError(f"{path} is not a tokenizer: {error}", "give a tokenizer.json") from error
    opened.no_truncation()
    opened.no_padding()
    ids = (opened.token_to_id(name) for name in _FIRST_TOKENS)
    prefix = next((one for one in ids if one is not None), None)
    return Tokenizer(
        name=path.name,
        sha256=file_sha256(path),
        size=opened.get_vocab_size(with_added_tokens=True),
        prefix=0 if prefix is None else prefix,
        leads=opened.encode("a").ids[:1] == [prefix],
        encode=lambda text: opened.encode(text, add_special_tokens=False).ids,
    )


def _open_sentencepiece(path: Path) -> Tokenizer:
    _need("sentencepiece")
    from sentencepiece import SentencePieceProcessor

    try:
        opened = SentencePieceProcessor(model_file=str(path))
    except Exception as error:  # the library raises nothing more specific
        raise UsageError(f"{path} is not a tokenizer: {error}", "give a tokenizer.model") from error
    first = [one for one in (opened.bos_id(), opened.eos_id()) if one >= 0]
    return Tokenizer(
        name=path.name,
        sha256=file_sha256(path),
        size=opened.vocab_size(),
        prefix=first[0] if first else 0,
        leads=opened.bos_id() >= 0,
        encode=lambda text: list(opened.encode(text)),
    )
