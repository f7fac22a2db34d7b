"""The base of every error that a user reads, and signs by which libraries' errors are known."""

import logging
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache


class FleetError(Exception):
    """An expected failure: `message` says what happened and where, `remedy` what to do about it.

    Both go to `Exception` by position, so that the error survives pickling between processes.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})"


class BadFileError(FleetError):
    """A file is not valid: missing, not a regular file, too large, or not readable as text.

    The command line ends with exit code 2.
    """


class MissingFileError(BadFileError):
    """No file of that name exists."""


@lru_cache(maxsize=1000)
def warn_once(text: str) -> None:
    """Logs a warning of a problem that is met again and again, once in a process."""
    logging.getLogger(__name__).warning("%s", text)


@contextmanager
def reworded(kind: type[FleetError], *causes: type[FleetError]) -> Iterator[None]:
    """Raises these errors of the block as an error of this kind, with their words.

    Raises:
        FleetError: of the class `kind`.
    """
    try:
        yield
    except causes as error:
        raise kind(error.message, error.remedy) from error


def raise_together(errors: Iterable[FleetError]) -> None:
    """Raises several errors as one of the first one's class; nothing if there is none."""
    found = list(errors)
    if len(found) == 1:
        raise found[0]
    if found:
        raise type(found[0])(
            "; ".join(dict.fromkeys(error.message for error in found)),
            "; ".join(dict.fromkeys(error.remedy for error in found)),
        )


_PANIC = "PanicException"
"""Source: PyO3, module `pyo3_runtime`: each such library has its own class of this name."""


def is_rust_panic(error: BaseException) -> bool:
    """Whether an error is a panic: it derives from `BaseException`, not from `Exception`."""
    return type(error).__name__ == _PANIC


@contextmanager
def failing_as(
    kind: type[FleetError], message: str, remedy: str, *causes: type[Exception]
) -> Iterator[None]:
    """Raises errors of the system or of a library that reads a file as `kind`.

    Without `causes` any error: damage of a file can cause every one.

    Raises:
        FleetError: of the class `kind`; its message ends with the words of the library.
    """
    try:
        yield
    except BaseException as error:
        is_any = isinstance(error, Exception) or is_rust_panic(error)
        if not (
            isinstance(error, causes) if causes else is_any and not isinstance(error, FleetError)
        ):
            raise
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = shortened(said, 300)
        raise kind(f"{message}: {reason}", remedy) from error


_MEMORY_SIGNS = re.compile(
    "|".join(
        (
            "bad_alloc",  # the C++ standard library: std::bad_alloc
            "std::length_error",  # the same: a container of impossible size, in a damaged file
            "MemoryError",  # Python, in the traceback of a process that has ended
            "can't allocate memory",  # PyTorch: DefaultCPUAllocator
            "cannot allocate memory",  # the system: strerror(ENOMEM)
            "failed to allocate memory",  # ONNX Runtime: its arena
            "out of memory",  # CUDA: cudaErrorMemoryAllocation, and PyTorch's allocator above it
            # The dynamic loader of glibc; also for a library that may not be executed.
            r"failed to map segment from shared object(?!: Operation not permitted)",
        )
    ),
    re.IGNORECASE,
)
"""How libraries report a failed allocation, in exceptions of their own and in their output."""


def says_out_of_memory(text: str) -> bool:
    """Whether a program's output means that an allocation failed."""
    return _MEMORY_SIGNS.search(text) is not None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one of its causes, means that an allocation failed."""
    cause: BaseException | None = error
    seen: list[BaseException] = []  # `raise error from error` makes a circle
    while cause is not None and cause not in seen:
        seen.append(cause)
        if isinstance(cause, MemoryError) or says_out_of_memory(str(cause)):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


# Words in messages: counts, durations, the name that a user probably meant, and choices.
#
# A message names a choice as `` `source=` ``, `` `quantity=memory` `` or `` `set k=3` ``: it is
# an argument or a field in Python, and a field of a form. `with_flags` makes it an option of a
# command.

_LONGEST = 100
"""Maximum letters to compare, because the time grows with their square."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ends with `:name` or is most similar; `None` if no name is similar."""
    import difflib  # not earlier: the measuring worker imports this module and never needs it

    names = list(known)
    matches = [one for one in names if one.endswith(f":{name}")]
    matches += difflib.get_close_matches(name[:_LONGEST].lower(), names, n=1, cutoff=0.5)
    return matches[0] if matches else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """`did you mean 'resnet18'? ` before the rest of a remedy; empty if no name is similar.

    With `otherwise` it is the whole remedy, and `otherwise` if no name is similar.
    """
    near = nearest(name, known)
    if otherwise is not None:
        return f"did you mean '{near}'?" if near else otherwise
    return f"did you mean '{near}'? " if near else ""


def count_of(n: int, noun: str, plural: str | None = None) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`; less than a second is `1 s`."""
    whole = round(seconds) or int(seconds > 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def few_of(names: Sequence[str], most: int) -> str:
    """The first names as a list for a sentence, and how many more there are: `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


_CHOICE = re.compile(r"`(?P<set>set )?(?P<name>[a-z][a-z_]*)=(?P<value>[^`\n]*)`")
_ONE = r"`(?:set )?[a-z][a-z_]*=[^`\n]*`"
_COMMAND = re.compile(rf"`(?P<command>fleetrank [^`]*)` with (?P<choices>{_ONE}(?: and {_ONE})*)")


def with_flags(text: str) -> str:
    """The text for a terminal: `` `source_tier=cpu` `` becomes `--source-tier cpu`.

    `` `set k=3` `` becomes `--set k=3`, `` `force=true` `` becomes `--force`, and a command takes
    it in: `` `fleetrank query` with `tables=true` `` becomes `` `fleetrank query --tables` ``. More
    choices of a command follow with `and`. A value is quoted as a shell needs it.
    """

    def command(found: re.Match[str]) -> str:
        options = (_flag(choice) for choice in _CHOICE.finditer(found["choices"]))
        return f"`{' '.join((found['command'], *options))}`"

    return _CHOICE.sub(_flag, _COMMAND.sub(command, text))


def _flag(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    if found["set"]:
        return f"--set {shlex.quote(f'{name}={value}')}"
    option = f"--{name.replace('_', '-')}"
    return option if value in ("", "true") else f"{option} {shlex.quote(value)}"


# Shows text from files and devices so that it cannot control a terminal or hide itself.

_JOINED = "\u0590-\u1cff\u2190-\u2bff\ufe0f\U0001f000-\U0001faff"
"""Scripts from Hebrew to Sundanese, and emoji: their spelling uses joiners of width zero."""
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # controls, those of 8 bits too; escape is one
    "|\r(?!\n)"  # back to the start of the line, over the text there
    "|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # change the direction of what follows
    "|[\xad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb]"  # unseen
    "|[\U000e0000-\U000e007f]"  # a second, unseen ASCII
    "|[\u2028\u2029]"  # end a line
    f"|(?<![{_JOINED}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}])"  # joiners of nothing
    "|[\ud800-\udfff]"  # halves of pairs: what is left of bytes that are no text
)
_BREAKS = re.compile("[\t\n\r]")


def visible(text: str) -> str:
    r"""Text of several lines; each unsafe character is written as in JSON: `\u001b`.

    Line ends and tabs stay. JSON keeps its meaning, because its strings can contain such escapes.
    Safe text does not change, in any script.
    """
    return _UNSAFE.sub(_escape, text)


def visible_line(text: str) -> str:
    """A name or a message on one line: line ends and tabs are also written as in JSON."""
    return _BREAKS.sub(_escape, visible(text))


def shortened(text: str, most: int = 80) -> str:
    """Text of at most `most` characters; the omitted part is in its middle."""
    if len(text) <= most:
        return text
    gap = " ... "
    head = (most - len(gap) + 1) // 2
    return text[:head] + gap + text[len(text) - (most - len(gap) - head) :]


def _escape(match: re.Match[str]) -> str:
    encoded = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{encoded[at : at + 2].hex()}" for at in range(0, len(encoded), 2))
