"""Reads what the programs have in common: figures in their text, and the reason of a failure."""

import math
import re
import signal
from collections.abc import Mapping
from dataclasses import replace

from fleetrank.device_agents.android.programs.program_output import ProgramOutput, Wording
from fleetrank.device_agents.device_output import without_long_lines
from fleetrank.device_agents.errors import (
    BadArtifactError,
    BadOutputError,
    CrashedError,
    KilledError,
    OutOfMemoryError,
    UnfitConditionsError,
    UnsupportedError,
)
from fleetrank.foundation.errors import FleetError, says_out_of_memory
from fleetrank.foundation.units import NS_PER_S

NUMBER = r"-?[0-9]++(?:\.[0-9]*+)?+(?:[eE][-+]?[0-9]{1,4}+)?+"
"""A number as C++ prints it, also as `1.04176e+06`. The pattern never backtracks."""
_DAY_NS = 86_400 * NS_PER_S
"""No repeat lasts a day; a longer time has another unit or is not a valid number."""
_FIELD = re.compile(rf"(?<![A-Za-z0-9_])([A-Za-z0-9_]++)=({NUMBER})", re.ASCII)


def to_ns(value: str | float, ns_per_unit: int, what: str) -> int:
    """A time in nanoseconds.

    Raises:
        BadOutputError: negative, not finite, or longer than a day.
    """
    ns = float(value) * ns_per_unit
    if not (math.isfinite(ns) and 0 <= ns < _DAY_NS):
        raise not_a_result(f"{what} is {str(value)[:40]}")
    return round(ns)


def to_latency_ns(value: str | float, ns_per_unit: int, what: str) -> int:
    """A positive time in nanoseconds: an inference of 0 ns means that the figure was lost.

    Raises:
        BadOutputError: the same as `to_ns`, or zero.
    """
    ns = to_ns(value, ns_per_unit, what)
    if ns == 0:
        raise not_a_result(f"{what} is zero")
    return ns


def named_fields(text: str) -> Mapping[str, str]:
    """`a=1 b=2.5` as a mapping; fields without a number are skipped."""
    return dict(_FIELD.findall(text))


def not_a_result(why: str) -> BadOutputError:
    """The error for a program that ended normally but whose output is not a plausible result."""
    return BadOutputError(
        f"the output is not a result: {why}",
        "read the raw log: another version of the program may print another format",
    )


TAIL_CHARACTERS = 600
"""Most characters of a program's last output that a message keeps."""
_FROM_SIGNAL = 128
"""A POSIX shell reports a program ended by signal n as 128 + n."""
_NOT_RUNNABLE = (
    "CANNOT LINK EXECUTABLE", "Exec format error", "not executable", "inaccessible or not found",
    "has unexpected e_machine",
)  # fmt: skip
"""How Android's linker and shell reject a binary of another ABI or without its libraries."""
_SMALL_PAGES = "cannot be smaller than system page size"
"""Source: linker_phdr.cpp of bionic, Android 15."""
_NOT_PINNED = re.compile(r"^taskset: [^\n]*Invalid argument", re.MULTILINE)
"""Source: sched_setaffinity(2): EINVAL when no core of the mask is online. Exit code 1."""


def readable(output: ProgramOutput) -> ProgramOutput:
    """The output, prepared for regular expressions; an old stored log may have longer lines."""
    return replace(
        output,
        stdout=without_long_lines(output.stdout),
        stderr=without_long_lines(output.stderr),
        logcat=None if output.logcat is None else without_long_lines(output.logcat),
    )


def all_text(output: ProgramOutput) -> str:
    """All text of the program; versions write to different streams."""
    return "\n".join(part for part in (output.stdout, output.stderr, output.logcat) if part)


def last_words(text: str) -> str:
    """The end of a text, for a message."""
    return text.strip()[-TAIL_CHARACTERS:]


def error_of(exit_code: int, text: str, name: str, wording: Wording) -> FleetError:
    """The error that the output of a failed program stands for."""
    words = last_words(text)
    ending = _signal_name(exit_code)
    program = name if ending is None else f"{name}, ended by {ending},"
    if says_out_of_memory(text):
        return OutOfMemoryError(
            f"{program} could not allocate memory: {words}",
            "free memory on the phone, or remove the model from the sweep",
        )
    if (not_started := _not_started(exit_code, text, program)) is not None:
        return not_started
    if _says(text, wording.unsupported):
        return UnsupportedError(
            f"{program} does not support the request: {words}",
            f"choose another backend or option, or give {wording.build}",
        )
    if _says(text, wording.bad_artifact):
        return BadArtifactError(
            f"{program} rejects the file: {words}", "export it again, or check where it comes from"
        )
    return _ended_badly(name, exit_code, words)


def _not_started(exit_code: int, text: str, program: str) -> FleetError | None:
    """The error of a program that Android did not start; `None` if it started."""
    words = last_words(text)
    if _NOT_PINNED.search(text):
        return UnfitConditionsError(
            f"the cores to run on are offline: {words}",
            "it will be retried; if all retries fail, register the phone again, or measure with "
            "affinity: free",
        )
    if _SMALL_PAGES in text:
        return UnsupportedError(
            f"{program} is built for smaller memory pages than this phone has: {words}",
            "link it with -Wl,-z,max-page-size=16384, or build it with NDK r28 or newer",
        )
    if exit_code in (126, 127) or _says(text, _NOT_RUNNABLE):
        return UnsupportedError(
            f"{program} does not run on this phone: {words}",
            "give a build for the phone's ABI, with the libraries it needs: `tool=NAME=PATH`",
        )
    return None


def _says(text: str, signs: tuple[str, ...]) -> bool:
    return any(sign in text for sign in signs)


def _ended_badly(program: str, exit_code: int, words: str) -> FleetError:
    if exit_code == _FROM_SIGNAL + signal.SIGKILL:
        return KilledError(
            f"{program} was killed; last output: {words}",
            "the phone may have run out of memory; close its apps and try again",
        )
    ending = _signal_name(exit_code) or f"exit code {exit_code}"
    return CrashedError(
        f"{program} ended with {ending}; last output: {words}",
        "the program or the file may be defective; try another version of either",
    )


def _signal_name(exit_code: int) -> str | None:
    """The signal that ended the program; `None` if it ended itself."""
    try:
        return signal.Signals(exit_code - _FROM_SIGNAL).name
    except ValueError:
        return None
