"""Which runtime runs which format: fleetrank's own, and those that other packages add."""

import re
from dataclasses import dataclass
from typing import Protocol

from fleetrank.foundation.entry_points import Outside
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import (
    FORMAT_OF_RUNTIME,
    OPEN_WORD,
    RUNTIME_OF_FORMAT,
    Format,
    Runtime,
    words_of,
)
from fleetrank.foundation.wording import did_you_mean

_FORMAT = re.compile("[a-z][a-z0-9]{0,7}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a model file says of itself.

    Attributes:
        weight_type: type of most weights, such as `float32`: NumPy's names, and `bfloat16`.
        parameters: number of weights.
        macs: multiply-accumulates of one inference at batch 1; `None` if they are not known. FRM
            and all figures of FLOPs then leave the model out, unless its card states them.
    """

    weight_type: str
    parameters: int
    macs: int | None = None


class FormatReader(Protocol):
    """The part of a runtime of another package that concerns its format."""

    format: str
    """A format of fleetrank's, such as `onnx`: models are then exported to it. Or a new one, of 1
    to 8 small letters and digits: files with this suffix run in the runtime."""

    def describe(self, path: str) -> FileFacts:
        """What a file of a new format says of itself; reads the file and runs nothing of it.

        A runtime of a format of fleetrank's does not have it. It may raise any error for a file
        that is not of the format.
        """
        ...


def why_no_runtime(member: object) -> str | None:
    """What a class lacks of `OutsideRunner`, the contract in `device_agents`, or `None`."""
    if not isinstance(member, type):
        return f"it is {type(member).__name__}, not a class"
    stated = getattr(member, "format", None)
    if not (isinstance(stated, str) and _FORMAT.fullmatch(stated)):
        return f"its format is {stated!r}, not 1 to 8 small letters and digits"
    methods = ("version", "admit", "load", *(() if stated in words_of(Format) else ("describe",)))
    absent = [one for one in methods if not callable(getattr(member, one, None))]
    if absent:
        return f"its class has no method {', '.join(absent)}"
    if not getattr(getattr(member, "capability", None), "backends", ()):
        return "its capability is not a `Capability` with a backend"
    if not isinstance(getattr(getattr(member, "library", None), "module", None), str):
        return "its library is not a `Library`"
    return None


OUTSIDE_RUNTIMES: Outside[type[FormatReader]] = Outside(
    "runtime", "fleetrank.runtimes", words_of(Runtime), why_no_runtime
)


def format_of(runtime: Runtime) -> Format:
    """The format that a runtime runs.

    Raises:
        ValueError: no runtime has this name.
        EntryPointError: the package that adds it is broken.
    """
    if runtime in FORMAT_OF_RUNTIME:
        return FORMAT_OF_RUNTIME[runtime]
    found = OUTSIDE_RUNTIMES.load(runtime)
    if found is None:
        raise ValueError(_unknown(runtime))
    return Format(found.format)


def runtime_of(format_: Format) -> Runtime:
    """The usual runtime of a format: fleetrank's own, otherwise the first one by its name.

    Raises:
        ValueError: no runtime runs the format.
    """
    if format_ in RUNTIME_OF_FORMAT:
        return RUNTIME_OF_FORMAT[format_]
    for name, reader in OUTSIDE_RUNTIMES.loaded().items():
        if reader.format == format_:
            return Runtime(name)
    raise ValueError(f"no runtime of {format_} files is installed")


def described(format_: Format, path: str) -> FileFacts:
    """What a file says of itself, as the package of its format reads it.

    Raises:
        ValueError: no package reads it, the package rejects the file, or its answer is not valid.
    """
    reader = OUTSIDE_RUNTIMES.load(runtime_of(format_))
    if reader is None:
        raise ValueError(f"fleetrank reads {format_} files itself")
    try:
        facts = reader().describe(path)
    except Exception as error:  # a reader of damaged files can raise every one
        raise ValueError(f"{type(error).__name__}: {shortened(str(error))}") from error
    counts = (facts.parameters, facts.macs) if isinstance(facts, FileFacts) else ()
    if not counts or any(not isinstance(one, int) or one < 0 for one in counts if one is not None):
        raise ValueError(f"'describe' of format {format_} returned {shortened(repr(facts))}")
    return facts


def outside_format(suffix: str) -> Format | None:
    """The format of files with this suffix in a runtime of another package; `.npz` is `npz`."""
    if suffix[:1] != "." or _FORMAT.fullmatch(suffix[1:]) is None:
        return None
    found = Format(suffix[1:])
    return found if any(one.format == found for one in OUTSIDE_RUNTIMES.loaded().values()) else None


def known_runtime(name: str) -> Runtime:
    """The runtime with this name.

    Raises:
        ValueError: no runtime has this name; the text names the nearest.
        EntryPointError: the package that adds it is broken.
    """
    if OPEN_WORD.fullmatch(name) is None:
        raise ValueError(_unknown(name))
    format_of(Runtime(name))
    return Runtime(name)


def _unknown(name: str) -> str:
    known = (*words_of(Runtime), *OUTSIDE_RUNTIMES.names())
    hint = did_you_mean(name, known)
    return f"unknown runtime '{shortened(name)}': {hint}there are {', '.join(known)}"
