"""Turns the end of a program on the phone into an error, if it failed."""

import signal
from dataclasses import dataclass, replace

from fleetrank.device_agents.android.runners.phone_runner import ToolOutput
from fleetrank.device_agents.device_output.device_text import without_long_lines
from fleetrank.device_agents.errors import (
    BadArtifactError,
    CrashedError,
    KilledError,
    OutOfMemoryError,
    UnsupportedError,
)
from fleetrank.foundation.errors import FleetError, says_out_of_memory

TAIL_CHARACTERS = 600
"""Most characters of a program's last output that a message keeps."""

_FROM_SIGNAL = 128
"""A POSIX shell reports a program ended by signal n as 128 + n."""

_NOT_RUNNABLE = (
    "CANNOT LINK EXECUTABLE", "Exec format error", "not executable", "inaccessible or not found",
    "has unexpected e_machine",
)  # fmt: skip
"""How Android's linker and shell reject a binary of another ABI or without its libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The texts with which one program reports failures; searched only if it failed.

    Attributes:
        unsupported: texts for missing flags, operators and delegates.
        bad_artifact: texts for a file that it cannot read.
    """

    tool: str
    unsupported: tuple[str, ...]
    bad_artifact: tuple[str, ...]


def readable(output: ToolOutput) -> ToolOutput:
    """The output, prepared for regular expressions; an old stored log may have longer lines."""
    return replace(
        output,
        stdout=without_long_lines(output.stdout),
        stderr=without_long_lines(output.stderr),
        logcat=None if output.logcat is None else without_long_lines(output.logcat),
    )


def all_text(output: ToolOutput) -> str:
    """All text of the program; versions write to different streams."""
    return "\n".join(part for part in (output.stdout, output.stderr, output.logcat) if part)


def refuse_failed(output: ToolOutput, wording: Wording) -> None:
    """Returns if the exit code is 0.

    Raises:
        FleetError: the subclass that fits; see `PhoneRunner.read`.
    """
    if output.exit_code != 0:
        raise _error_of(output.exit_code, all_text(output), wording)


def last_words(text: str) -> str:
    """The end of a text, for a message."""
    return text.strip()[-TAIL_CHARACTERS:]


def _error_of(exit_code: int, text: str, wording: Wording) -> FleetError:
    words = last_words(text)
    tool = wording.tool
    if says_out_of_memory(text):
        return OutOfMemoryError(
            f"{tool} could not allocate memory: {words}",
            "free memory on the phone, or remove the model from the sweep",
        )
    if exit_code in (126, 127) or _says(text, _NOT_RUNNABLE):
        return UnsupportedError(
            f"{tool} does not run on this phone: {words}",
            "give a build for the phone's ABI, with the libraries it needs: --tool NAME=PATH",
        )
    if _says(text, wording.unsupported):
        return UnsupportedError(
            f"{tool} does not support the request: {words}",
            "choose another backend or option, or another build of the program",
        )
    if _says(text, wording.bad_artifact):
        return BadArtifactError(
            f"{tool} rejects the file: {words}", "export it again, or check where it comes from"
        )
    return _ended_badly(tool, exit_code, words)


def _says(text: str, signs: tuple[str, ...]) -> bool:
    return any(sign in text for sign in signs)


def _ended_badly(tool: str, exit_code: int, words: str) -> FleetError:
    if exit_code == _FROM_SIGNAL + signal.SIGKILL:
        return KilledError(
            f"{tool} was killed; last output: {words}",
            "the phone may have run out of memory; close its apps and try again",
        )
    return CrashedError(
        f"{tool} ended with {_exit_name(exit_code)}; last output: {words}",
        "the program or the file may be defective; try another version of either",
    )


def _exit_name(exit_code: int) -> str:
    try:
        return signal.Signals(exit_code - _FROM_SIGNAL).name
    except ValueError:
        return f"exit code {exit_code}"
