"""Inputs for readers: real samples changed in places, hostile values, documents of known keys."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
MAX_BYTES = 64 * 1024
"""More of a text than a probe reads, and more of a file than most people write."""

HOSTILE = (
    "", " ", "\0", "\x1b[2J", "\u202e", "\u2028", "\ufeff", "\r", "\n", "é", "\U0001f4f1", "%s",
    "{}", "$(id)", "`id`", "../../etc/passwd", "/dev/zero", "/", "<script>", "</script>", "<!--",
    "&amp;", "\"'", "a=b", "*", "**", ".*", "(", "[", "nan", "inf", "-inf", "1e999", "1e-400",
    "-0", "0x10", "1_000", "٣", "9" * 20, "9" * 400, "-1", "2147483648", "18446744073709551616",
    "null", "true", "~", "!!python/object:os.system", "<<", "2020-13-45", "é" * 300,
)  # fmt: skip
"""Texts that are something else to some reader."""
NUMBERS = (0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 0.0, -0.0, 1e308, 1e-320)
RUNS = tuple(text * 8000 for text in ("9", " ", "a", "[", "{", "- ", "(", "\n", "1 ", "a: ", "&*"))
"""What an expression that looks back, or a parser that calls itself, takes too long over."""
_WORDS = (
    *(text.encode("utf-8", "surrogatepass") for text in (*HOSTILE, *RUNS)),
    b"\xff", b"\xed\xa0\x80", b"\x80", b"\xc0\x80", b"\xfe\xff", b"\x00" * 8, b"\xff" * 8,
    b"\xff\xff\xff\x7f",
)  # fmt: skip


def one_of(found: Sequence[T]) -> SearchStrategy[T]:
    """One of them, like `sampled_from`, which writes all of them out in its own name."""
    return st.integers(0, len(found) - 1).map(found.__getitem__)


texts = st.one_of(one_of(HOSTILE), st.text(max_size=20))
scalars = st.one_of(st.none(), st.booleans(), st.integers(), one_of(NUMBERS), st.floats(), texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)


def mutated(samples: Sequence[bytes], words: Sequence[bytes] = ()) -> SearchStrategy[bytes]:
    """A sample with up to five changes: bytes lost, changed, repeated, words put in, two joined."""
    found = (*words, *_WORDS) if not words else (*words, *words, *words, *_WORDS)
    place = st.integers(0, max(1, *map(len, samples)))
    edit = st.tuples(one_of(sorted(_EDITS)), place, st.integers(0, 48), one_of(found))
    return st.builds(_edited, one_of(samples), st.lists(edit, max_size=5), one_of(samples))


def lines(parts: SearchStrategy[str], most: int = 12) -> SearchStrategy[bytes]:
    """Lines of a grammar, as bytes."""
    return st.builds(
        lambda found, end: end.join(found).encode("utf-8", "surrogatepass"),
        st.lists(parts, max_size=most),
        st.sampled_from(("\n", "\r\n", "\n\n")),
    )


def documents(
    base: object, keys: Sequence[str], form: Callable[[object], bytes]
) -> SearchStrategy[bytes]:
    """A document of values: the base with up to four places changed, or one of known keys."""
    names = st.one_of(one_of(tuple(keys)), texts)
    # A value from elsewhere in the document is often of the right kind, and gets further.
    other = one_of(tuple(_leaves(base)))
    change = st.tuples(
        st.lists(st.integers(0, 40), max_size=5), names, st.one_of(values, scalars, other, other)
    )
    changed = st.builds(lambda changes: _changed(base, changes), st.lists(change, max_size=3))
    free = st.dictionaries(names, values, max_size=6)
    return st.builds(form, st.one_of(changed, changed, free, values))


def as_json(value: object) -> bytes:
    """With what only Python writes: NaN, halves of surrogate pairs."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def as_yaml(value: object) -> bytes:
    """As a person's editor would save it."""
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False)
    return str(text).encode("utf-8", "surrogatepass")


def as_toml(value: object) -> bytes:
    """Tables of two levels, which is all that files of ours have."""
    if not isinstance(value, Mapping):
        return as_json(value)
    plain = [
        f"{_toml_key(key)} = {_toml(one)}" for key, one in value.items() if type(one) is not dict
    ]
    for key, one in value.items():
        if isinstance(one, dict):
            plain.append(f"[{_toml_key(key)}]")
            plain += [f"{_toml_key(name)} = {_toml(inner)}" for name, inner in one.items()]
    return "\n".join(plain).encode("utf-8", "surrogatepass")


def arbitrary(most: int = 300) -> SearchStrategy[bytes]:
    """Bytes of no form."""
    return st.one_of(st.binary(max_size=most), st.text(max_size=most).map(_utf8))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _toml_key(key: object) -> str:
    text = str(key)
    return text if text.isascii() and text.isidentifier() else json.dumps(text)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml_key(k)} = {_toml(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value).replace("infinity", "inf")
    return json.dumps(value, ensure_ascii=False)


_Edit = tuple[str, int, int, bytes]


def _edited(data: bytes, edits: list[_Edit], other: bytes) -> bytes:
    for kind, at, size, word in edits:
        data = _EDITS[kind](data, at % (len(data) + 1), size, word, other)[:MAX_BYTES]
    return data


_EDITS: Mapping[str, Callable[[bytes, int, int, bytes, bytes], bytes]] = {
    "cut": lambda data, at, _size, _word, _other: data[:at],
    "flip": lambda data, at, size, _word, _other: (
        data[:at] + bytes((byte ^ (1 << size % 8)) for byte in data[at : at + 1]) + data[at + 1 :]
    ),
    "insert": lambda data, at, _size, word, _other: data[:at] + word + data[at:],
    "join": lambda data, at, _size, _word, other: data[:at] + other[at % (len(other) + 1) :],
    "lose": lambda data, at, size, _word, _other: data[:at] + data[at + size :],
    "repeat": lambda data, at, size, word, _other: (
        data[:at] + data[at : at + size] * (2 + len(word)) + data[at + size :]
    ),
    "replace": lambda data, at, size, word, _other: data[:at] + word + data[at + size :],
}


def _changed(base: object, changes: list[tuple[list[int], str, object]]) -> object:
    for path, name, value in changes:
        base = _put(base, path, name, value)
    return base


def _leaves(base: object) -> Iterator[object]:
    for inner in (
        base.values() if isinstance(base, dict) else base if isinstance(base, list) else ()
    ):
        yield from _leaves(inner)
    yield base


def _put(base: object, path: list[int], name: str, value: object) -> object:
    """A copy with another value at a place; an empty rest of the path adds or replaces a key."""
    if isinstance(base, dict):
        if not path or not base:
            return {**base, name: value}
        key = list(base)[path[0] % len(base)]
        return {**base, key: _put(base[key], path[1:], name, value)}
    if isinstance(base, list) and base and path:
        at = path[0] % len(base)
        return [*base[:at], _put(base[at], path[1:], name, value), *base[at + 1 :]]
    return value
