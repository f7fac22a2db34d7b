"""The messages between a page and its server; every value of a page is checked here, once.

A page can be anybody's program: it can write anything. A message with arrays is a frame: the length
of a JSON text in 4 bytes, the text, and the bytes of the arrays one after the other.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import Options, OptionValue
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.foundation.codec import CodecError, from_json
from fleetrank.foundation.visible_text import shortened, visible_line

MAX_TEXT_BYTES = 16 * 2**20
"""For the longest answer: 100,000 samples of 20 digits are 2 MB."""
MAX_ARRAY_BYTES = 256 * 2**20
"""For the outputs of one inference: a batch of segmentations has 100 MB."""
MAX_MESSAGE_BYTES = 64 * 1024
"""For every other message of a page."""
MAX_WORDS = 256
"""Characters of a text that a page states of itself; an agent string is half as long."""
_LENGTH = 4
_MAX_AXES = 16
_REMEDY = "load the page again; if that does not help, its browser or its extensions change it"
_DTYPES = frozenset({
    "float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32",
    "int64", "uint64", "bool",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TabFacts:
    """What a page says of its browser.

    Attributes:
        agent: the agent string.
        engine: name and major version, such as `chromium 156`.
        system: as the browser names it, such as `Linux x86_64`.
        cores: logical cores; `None` if the browser hides it.
        memory_gib: a class of memory (8 is "8 or more"); `None` if the browser hides it.
        is_isolated: the page may use threads and a fine clock.
        has_wasm: the browser has WebAssembly.
        clock_step_ns: the smallest step of its clock.
        adapter: of WebGPU; `None` without one.
    """

    agent: str
    engine: str
    system: str
    cores: int | None
    memory_gib: float | None
    is_isolated: bool
    has_wasm: bool
    clock_step_ns: int
    adapter: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The first message of a page, which shows its key with it: the token of its link."""

    token: str
    facts: TabFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class TabCall:
    """A page asks for a task.

    Attributes:
        tab: random, new whenever the page is loaded.
        is_new: the first call of the tab.
        is_hidden: the user does not see the tab, so the browser slows it down.
    """

    tab: str
    is_new: bool
    is_hidden: bool
    facts: TabFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfTask:
    """What messages about a task name."""

    tab: str
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat(_OfTask):
    """A page still measures; `is_gone`: it is closed, or loaded again."""

    is_gone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TabArray:
    """An input or output of a loaded file, as the library in the page states it."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile(_OfTask):
    """A page has loaded its file and asks for the inputs."""

    inputs: tuple[TabArray, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TabFault:
    """Why a page did not measure; `kind` is a word of `repeat.ERRORS`."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TabTimes:
    """What a page measured.

    Attributes:
        runs_per_sample: inferences that one sample is the mean of.
        threads: the number that the library really used.
        version: of the library.
        longest_gap_ns: between two beats of the page; a frozen page has a long one.
        outputs: of the last run, in the order of the file.
    """

    load_ns: int
    first_inference_ns: int
    warmup_ns: int
    warmup_runs: int
    is_warmup_stable: bool
    samples_ns: tuple[int, ...]
    runs_per_sample: int
    stop_reason: str
    clock_step_ns: int
    threads: int
    version: str
    adapter: str | None
    longest_gap_ns: int
    outputs: tuple[TabArray, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(_OfTask):
    """The end of a task: times or an error."""

    error: TabFault | None
    times: TabTimes | None


def read_frame(data: bytes) -> tuple[Done, list[Array]]:
    """The answer of a page, and the outputs of its last run.

    Raises:
        CodecError: the text is not an answer, or the arrays are not those that it states.
    """
    length = int.from_bytes(data[:_LENGTH], "big")
    text, rest = data[_LENGTH : _LENGTH + length], data[_LENGTH + length :]
    if len(text) < length or length > MAX_TEXT_BYTES:
        raise CodecError("an answer is cut off, or its text is too long", _REMEDY)
    done = from_json(Done, text.decode(errors="replace"))
    if (done.error is None) == (done.times is None):
        raise CodecError("an answer has neither times nor an error, or both", _REMEDY)
    return done, [] if done.times is None else _arrays(done.times.outputs, rest)


def _arrays(stated: Sequence[TabArray], data: bytes) -> list[Array]:
    found: list[Array] = []
    for one in stated:
        shape = sizes_of(one)
        size = math.prod(shape) * np.dtype(one.dtype).itemsize
        if size > len(data):
            raise CodecError(f"output {shortened(one.name)!r} is cut off", _REMEDY)
        found.append(np.frombuffer(data[:size], one.dtype).reshape(shape))
        data = data[size:]
    if data:
        raise CodecError("an answer has more bytes than its outputs", _REMEDY)
    return found


def sizes_of(one: TabArray) -> tuple[int, ...]:
    """The shape of an output.

    Raises:
        CodecError: its type or a size is not possible.
    """
    sizes = tuple(size for size in one.shape if size is not None and 0 <= size <= MAX_ARRAY_BYTES)
    if one.dtype not in _DTYPES or not len(one.shape) == len(sizes) <= _MAX_AXES:
        said = f"{one.dtype} of {list(one.shape)}"
        raise CodecError(f"an array of a page is {shortened(said)}, which cannot be", _REMEDY)
    return sizes


def require_sizes(stated: Sequence[TabArray]) -> None:
    """Returns if a page can have such inputs; a free size counts as 1.

    Raises:
        CodecError: they are too large, or of an impossible type or shape.
    """
    shapes = [replace(one, shape=tuple(size or 1 for size in one.shape)) for one in stated]
    if sum(math.prod(sizes_of(one)) for one in shapes) * 8 > MAX_ARRAY_BYTES:
        raise CodecError("the inputs that a page states are too large", _REMEDY)


def write_frame(names: Sequence[str], arrays: Sequence[Array]) -> bytes:
    """The inputs of a task, as the page reads them."""
    inputs = [
        {"name": name, "dtype": str(array.dtype), "shape": array.shape}
        for name, array in zip(names, arrays, strict=True)
    ]
    text = json.dumps({"inputs": inputs}).encode()
    parts = (np.ascontiguousarray(array).tobytes() for array in arrays)
    return b"".join((len(text).to_bytes(_LENGTH, "big"), text, *parts))


def words(text: str) -> str:
    """A text of a page, cut and on one line, for messages and rows."""
    return visible_line(shortened(text, MAX_WORDS))


def options_of(values: Mapping[str, OptionValue | None]) -> Options:
    """Facts of a page by name, its texts as of `words`; `None` is left out."""
    return tuple(
        (name, words(one) if isinstance(one, str) else one)
        for name, one in sorted(values.items())
        if one is not None
    )


def require_possible(facts: TabFacts) -> None:
    """Returns if a browser can be so.

    Raises:
        BadOutputError: it cannot be measured, or its numbers are impossible.
    """
    if not facts.has_wasm:
        raise BadOutputError(
            "this browser has no WebAssembly", "switch it on, or open the page in another browser"
        )
    texts = (facts.agent, facts.engine, facts.system, facts.adapter or "")
    numbers = (facts.cores or 1, facts.memory_gib or 1, facts.clock_step_ns)
    if max(map(len, texts)) > 100 * MAX_WORDS or not all(0 < one < 2**40 for one in numbers):
        raise BadOutputError("the page says impossible things about its browser", _REMEDY)
