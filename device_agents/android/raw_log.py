"""The kept output of one call of a program on a phone: written once, read by every later parser.

A text file for people, of sections whose length stands in their heading, so that no output can
pass for a heading; the program's result file lies beside it, byte for byte.
"""

import re
import shlex
from pathlib import Path

from device_agents.android.runners.runner import ToolOutput, ToolRun
from device_agents.errors import BadOutputError

SUFFIX = ".log"
RESULT_SUFFIX = ".result"
"""Beside the log, under the same name."""

_FIRST_LINE = b"fleetrank raw log 1\n"
_HEADING = re.compile(rb"== ([a-z_]{1,20}), ([0-9]{1,12}) bytes\n")
_TEXT = ("utf-8", "surrogatepass")
"""What a phone wrote may hold half of a surrogate pair; it is kept as it is."""


def write_raw_log(path: Path, output: ToolOutput) -> None:
    """Keeps an output; the folder is made if need be.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if output.result is not None:
        path.with_suffix(RESULT_SUFFIX).write_bytes(output.result)
    path.write_bytes(encode_log(output))


def read_raw_log(path: Path) -> ToolOutput:
    """Reads what `write_raw_log` kept.

    Raises:
        BadOutputError: the file is gone or damaged.
    """
    result_path = path.with_suffix(RESULT_SUFFIX)
    try:
        content = path.read_bytes()
        result = result_path.read_bytes() if result_path.exists() else None
    except OSError as error:
        raise _damaged(f"{path} cannot be read: {error.strerror}") from error
    return decode_log(content, result)


def encode_log(output: ToolOutput) -> bytes:
    """The content of the log, all but the result file."""
    run = output.run
    sections = {
        "argv": shlex.join(run.argv),
        "result_file": run.result_file,
        "log_tag": run.log_tag,
        "warmup_runs": str(run.warmup_runs),
        "exit_code": str(output.exit_code),
        "stdout": output.stdout,
        "stderr": output.stderr,
        "logcat": output.logcat,
    }
    parts = [_FIRST_LINE]
    for name, text in sections.items():
        if text is not None:
            content = text.encode(*_TEXT)
            parts.append(f"== {name}, {len(content)} bytes\n".encode() + content + b"\n")
    return b"".join(parts)


def decode_log(content: bytes, result: bytes | None) -> ToolOutput:
    """The inverse of `encode_log`.

    Raises:
        BadOutputError: it is not such a log.
    """
    if not content.startswith(_FIRST_LINE):
        raise _damaged("the first line is not that of a raw log")
    sections = _sections(content, len(_FIRST_LINE))
    try:
        return ToolOutput(
            run=ToolRun(
                argv=tuple(shlex.split(sections["argv"])),
                result_file=sections.get("result_file"),
                log_tag=sections.get("log_tag"),
                warmup_runs=int(sections["warmup_runs"]),
            ),
            exit_code=int(sections["exit_code"]),
            stdout=sections["stdout"],
            stderr=sections["stderr"],
            result=result,
            logcat=sections.get("logcat"),
        )
    except (KeyError, ValueError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error


def _sections(content: bytes, at: int) -> dict[str, str]:
    sections: dict[str, str] = {}
    while at < len(content):
        heading = _HEADING.match(content, at)
        if heading is None:
            raise _damaged(f"no heading at byte {at}")
        end = heading.end() + int(heading[2])
        if content[end : end + 1] != b"\n":
            raise _damaged(f"the section at byte {at} is cut off")
        try:
            sections[heading[1].decode()] = content[heading.end() : end].decode(*_TEXT)
        except UnicodeDecodeError as error:
            raise _damaged(f"the section at byte {at} is not text") from error
        at = end + 1
    return sections


def _damaged(why: str) -> BadOutputError:
    return BadOutputError(f"a raw log is damaged: {why}", "restore it; its row stays as it is")
